// The topics of a cluster: rates, what waits, who blocks whom; and the named consumers with their lag.

import { emptyRow, Pictures } from "./live.js";
import { bytes, make, number, readAddress, writeAddress } from "./tools.js";

export async function openTopics(main, mode) {
  const find = make("input", { type: "search", placeholder: "Name contains…", "aria-label": "Show topics whose name contains", value: readAddress().values.get("find") ?? "" });
  const rows = make("tbody");
  const consumers = make("tbody");
  let latest = null;
  const history = new Map();
  const chosen = () => latest.topics.filter((topic) => topic.topic.includes(find.value));
  const show = () => {
    if (!latest) return;
    rows.replaceChildren(...(chosen().length ? chosen().map((topic) => topicRow(topic, history.get(topic.topic) ?? [])) : [emptyRow(9, "No topic of that name is used at the nodes that answer.")]));
    consumers.replaceChildren(...(latest.consumers.length ? latest.consumers.map(consumerRow) : [emptyRow(7, "There is no named consumer.")]));
  };
  find.addEventListener("input", () => { writeAddress("topics", { find: find.value }); show(); });
  main.append(make("div", { class: "page" },
    make("section", { class: "card" },
      make("header", {}, make("h2", {}, "Topics"), make("span", { class: "spacer" }), find),
      make("div", { class: "inside scroll" }, make("table", {},
        make("thead", {}, make("tr", {}, make("th", {}, "topic"), make("th", {}, "the last minute"), ...["published/s", "delivered/s", "volume", "subscriptions", "lag", "unsent", "dropped"].map((each) => make("th", { class: "n" }, each)))), rows))),
    make("section", { class: "card" }, make("header", {}, make("h2", {}, "Named consumers"), make("span", { class: "soft" }, "the one that is furthest behind first")),
      make("div", { class: "inside scroll" }, make("table", {},
        make("thead", {}, make("tr", {}, make("th", {}, "consumer"), make("th", {}, "topic"), ...["lag", "handed out", "members", "came back", "missed"].map((each) => make("th", { class: "n" }, each)))), consumers)))));
  const pictures = new Pictures(mode, (picture) => {
    latest = picture;
    for (const topic of picture.topics) history.set(topic.topic, [...(history.get(topic.topic) ?? []), topic.delivered].slice(-60));
    show();
  });
  return () => pictures.close();
}

function topicRow(topic, history) {
  const blocked = topic.blocked_by.length ? make("div", { class: "chip warn", title: topic.blocked_by.join("\n") }, topic.blocked_by[0].slice(0, 90)) : null;
  const cell = (value) => make("td", { class: "n" }, value);
  return make("tr", {},
    make("td", {}, make("a", { href: `#/messages?topic=${encodeURIComponent(topic.topic)}`, title: "Follow its messages" }, topic.topic), blocked),
    make("td", {}, spark(history)), cell(number(topic.published)), cell(number(topic.delivered)), cell(`${bytes(topic.bytes)}/s`), cell(number(topic.subscriptions)),
    make("td", { class: "n" }, topic.lag > 0 ? make("span", { class: "chip warn" }, number(topic.lag)) : "0"), cell(number(topic.unsent)), cell(number(topic.dropped)));
}

function consumerRow(each) {
  const cell = (value) => make("td", { class: "n" }, number(value));
  return make("tr", {}, make("td", {}, each.consumer), make("td", {}, each.topic),
    make("td", { class: "n" }, each.lag > 0 ? make("span", { class: "chip warn" }, number(each.lag)) : "0"), cell(each.handed_out), cell(each.members), cell(each.redelivered), cell(each.missed));
}

function spark(values) {
  const most = Math.max(1, ...values);
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("width", "120");
  picture.setAttribute("height", "24");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `deliveries per second, at most ${number(most)}`);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const points = values.map((value, at) => `${(120 - (values.length - 1 - at) * 2).toFixed(0)},${(22 - (value / most) * 20).toFixed(1)}`);
  line.setAttribute("points", points.join(" "));
  line.setAttribute("fill", "none");
  line.setAttribute("stroke", "var(--accent)");
  line.setAttribute("stroke-width", "1.6");
  picture.append(line);
  return picture;
}
