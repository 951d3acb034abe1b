// Small tools of all views: making elements, saying numbers, asking the server.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const number = (value) => Math.round(value).toLocaleString("en-US");

export function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) { value /= 1000; place += 1; }
  return `${value >= 100 || place === 0 ? Math.round(value) : value.toFixed(1)} ${units[place]}`;
}

const short = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)).replace(/\.0+$|(\.\d*[1-9])0+$/, "$1");

export function duration(ticks, unit) {
  if (unit !== "microseconds") return `${number(ticks)} tick${ticks === 1 ? "" : "s"}`;
  if (ticks < 1000) return `${Math.round(ticks)} µs`;
  if (ticks < 1e6) return `${short(ticks / 1000)} ms`;
  return ticks < 120e6 ? `${short(ticks / 1e6)} s` : `${Math.floor(ticks / 60e6)} min ${Math.round((ticks / 1e6) % 60)} s`;
}

export function spoken(sequence) {
  const life = Math.floor(sequence / 4294967296);
  const within = sequence % 4294967296;
  return life <= 1 ? `${within}` : `${within} (life ${life})`;
}

export class AskError extends Error {
  constructor(text, status) { super(text); this.status = status; }
}

export async function ask(path, values = {}, body = undefined) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== undefined && value !== null));
  const address = [...query].length ? `${path}?${query}` : path;
  const options = body === undefined ? {} : {
    method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", "X-Antiphon-Console": "1" },
  };
  let answer;
  try {
    answer = await fetch(address, options);
  } catch {
    throw new AskError("the console does not answer; its program may have ended", 0);
  }
  const value = await answer.json();
  if (!answer.ok) throw new AskError(value.error ?? answer.statusText, answer.status);
  return value;
}

let toastTimer = 0;
export function toast(text) {
  const box = document.getElementById("toast");
  box.textContent = text;
  box.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => box.classList.remove("shown"), 3500);
}

export const colourOf = (source, alpha = 1) => {
  const style = getComputedStyle(document.documentElement);
  const hue = (source * 137.508 + 228) % 360;
  return `hsl(${hue.toFixed(1)} ${style.getPropertyValue("--source-colour")} ${style.getPropertyValue("--source-light")} / ${alpha})`;
};

export function readAddress() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  return { view: path.replace(/^\//, ""), values: new URLSearchParams(query ?? "") };
}

export function writeAddress(view, values, replace = true) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== ""));
  const hash = `#/${view}${[...query].length ? `?${query}` : ""}`;
  if (hash === location.hash) return;
  if (replace) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
}
