// The page: asks which console this is, opens its views, and keeps light or dark.

import { ask, make, readAddress } from "./tools.js";
import { logIn } from "./login.js";

const MODES = {
  run: () => import("./run.js"),
  live: () => import("./live.js"),
  play: () => import("./play.js"),
};

const root = document.documentElement;
const chosen = localStorage.getItem("theme");
if (chosen) root.dataset.theme = chosen;
document.getElementById("theme").addEventListener("click", () => {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  dispatchEvent(new Event("themechange"));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));

const main = document.getElementById("main");
const tabs = document.getElementById("tabs");
let close = () => {};

async function open(views, mode) {
  const { view } = readAddress();
  const place = views.find((each) => each.name === view) ?? views[0];
  tabs.replaceChildren(...(views.length < 2 ? [] : views.map((each) => make("a", {
    href: `#/${each.name}`, "aria-current": each === place ? "page" : null,
  }, each.title))));
  close();
  main.replaceChildren();
  close = (await place.open(main, mode)) ?? (() => {});
}

async function begin() {
  let mode;
  try {
    mode = await ask("/api/mode");
  } catch (error) {
    if (error.status === 401) { await logIn(); return begin(); }
    main.replaceChildren(make("p", { class: "waiting" }, error.message));
    return undefined;
  }
  const views = (await MODES[mode.mode]()).views;
  addEventListener("hashchange", () => open(views, mode));
  return open(views, mode);
}

begin();
