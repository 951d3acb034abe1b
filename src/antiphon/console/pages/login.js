// Asks for the token of an admin, where the console needs one. The token is sent once and not kept.

import { ask, make } from "./tools.js";

export function logIn() {
  return new Promise((resolve) => {
    const token = make("input", { type: "password", name: "token", autocomplete: "off", required: true, class: "wide", "aria-label": "Token" });
    const trouble = make("p", { class: "soft", role: "alert" });
    const box = make("dialog", { "aria-labelledby": "login-title" },
      make("form", { onsubmit: async (event) => {
        event.preventDefault();
        try {
          await ask("/api/login", {}, { token: token.value });
        } catch (error) {
          trouble.textContent = error.message;
          token.select();
          return;
        }
        box.close();
        box.remove();
        resolve();
      } },
      make("h2", { id: "login-title" }, "Who are you?"),
      make("p", { class: "soft" }, "This console asks for the token of a client with the right admin."),
      make("div", { class: "form" }, token, make("button", { class: "primary" }, "Open the console")),
      trouble));
    box.addEventListener("cancel", (event) => event.preventDefault());
    document.body.append(box);
    box.showModal();
  });
}
