// A live cluster: its nodes, its topics and consumers, its messages. All views share one stream of pictures.

import { openCluster } from "./cluster.js";
import { openMessages } from "./messages.js";
import { openTopics } from "./topics.js";
import { AskError, make, number } from "./tools.js";
import { logIn } from "./login.js";

export const views = [
  { name: "cluster", title: "Cluster", open: openCluster },
  { name: "topics", title: "Topics", open: openTopics },
  { name: "messages", title: "Messages", open: openMessages },
];

// Pictures of the cluster, for as long as a view is open; the browser connects again by itself.
export class Pictures {
  constructor(mode, show) {
    this.mode = mode;
    this.facts = document.getElementById("facts");
    this.source = new EventSource("/api/cluster");
    this.source.addEventListener("picture", (event) => {
      this.latest = JSON.parse(event.data);
      this.say();
      show(this.latest);
    });
    this.source.addEventListener("error", async () => {
      this.facts.textContent = "no connection to the console; trying again…";
      if (this.source.readyState === EventSource.CLOSED) await this.renew(show);
    });
  }

  async renew(show) {
    const answer = await fetch("/api/mode").catch(() => null);
    if (answer?.status === 401) await logIn();
    if (!this.isClosed) setTimeout(() => { if (!this.isClosed) Object.assign(this, new Pictures(this.mode, show)); }, 2000);
  }

  say() {
    const { nodes } = this.latest;
    const there = nodes.filter((node) => node.is_there).length;
    this.facts.textContent = `cluster ${this.mode.cluster} · ${number(there)} node${there === 1 ? "" : "s"} · ${this.mode.fabric}, ${this.mode.order} · seen from node ${this.mode.node}`;
    document.title = `${this.mode.cluster} · Antiphon console`;
  }

  close() {
    this.isClosed = true;
    this.source.close();
  }
}

export const tile = (value, label, kind = "") => make("div", { class: `tile card ${kind}` }, make("b", {}, value), make("span", {}, label));

export function emptyRow(columns, text) {
  return make("tr", {}, make("td", { colspan: String(columns), class: "soft" }, text));
}

export { AskError };
