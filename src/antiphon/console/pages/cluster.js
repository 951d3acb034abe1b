// The nodes of a cluster, how they are connected, what comes and goes, and the tree of a publisher.

import { Pictures, tile } from "./live.js";
import { ask, bytes, colourOf, duration, make, number, readAddress, writeAddress } from "./tools.js";

export async function openCluster(main, mode) {
  return new ClusterPage(main, mode).start();
}

class ClusterPage {
  constructor(main, mode) {
    Object.assign(this, { main, mode, edges: [], picture: null });
    this.publisher = readAddress().values.get("publisher");
  }

  start() {
    this.tiles = make("div", { class: "tiles" });
    this.canvas = make("canvas", { class: "cluster", role: "img", "aria-label": "The nodes of the cluster and their connections" });
    this.choice = make("select", { "aria-label": "Draw the tree of a publisher", onchange: () => this.choose(this.choice.value) });
    this.feed = make("ul", { class: "feed", "aria-live": "polite" });
    this.rows = make("tbody");
    this.main.append(make("div", { class: "page" },
      this.tiles,
      make("div", { class: "two" },
        make("section", { class: "card" },
          make("header", {}, make("h2", {}, "Connections"), make("span", { class: "spacer" }), this.mode.fabric === "cube" ? make("label", {}, "tree of", this.choice) : null),
          this.canvas),
        make("section", { class: "card" }, make("header", {}, make("h2", {}, "What has happened")), make("div", { class: "inside" }, this.feed))),
      make("section", { class: "card" }, make("header", {}, make("h2", {}, "Nodes")),
        make("div", { class: "inside scroll" }, make("table", {},
          make("thead", {}, make("tr", {}, ...["node", "state", "address"].map((each) => make("th", {}, each)),
            ...["up", "clients", "sent", "unfinished", "for the disk", "certificate"].map((each) => make("th", { class: "n" }, each)), make("th", {}, "voters"), make("th", {}, "protocol"))),
          this.rows)))));
    this.pictures = new Pictures(this.mode, (picture) => this.show(picture));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.canvas);
    this.onTheme = () => this.draw();
    addEventListener("themechange", this.onTheme);
    return () => { this.pictures.close(); this.observer.disconnect(); removeEventListener("themechange", this.onTheme); };
  }

  async choose(publisher) {
    this.publisher = publisher || null;
    writeAddress("cluster", { publisher: this.publisher });
    await this.askTree();
    this.draw();
  }

  async askTree() {
    this.edges = this.publisher ? (await ask("/api/tree", { publisher: this.publisher })).edges : [];
    this.edgesFor = this.treeKey();
  }

  treeKey() { return `${this.publisher}:${(this.picture?.nodes ?? []).filter((node) => node.is_there).map((node) => node.node)}`; }

  async show(picture) {
    this.picture = picture;
    const { nodes, topics } = picture;
    const there = nodes.filter((node) => node.is_there);
    const lost = nodes.filter((node) => !node.is_there);
    const sum = (list, name) => list.reduce((total, each) => total + (each[name] ?? 0), 0);
    const troubles = there.reduce((total, node) => total + (node.troubles?.length ?? 0), 0);
    this.tiles.replaceChildren(
      tile(number(there.length), there.length === 1 ? "node" : "nodes"), tile(number(lost.length), "lost"), tile(number(sum(there, "clients")), "clients"),
      tile(number(sum(topics, "published")), "published per second"), tile(number(sum(topics, "delivered")), "deliveries per second"),
      tile(`${bytes(sum(there, "sent_per_second"))}/s`, "between nodes"), tile(number(troubles), troubles === 1 ? "trouble" : "troubles"));
    this.options(there);
    this.rows.replaceChildren(...nodes.map((node) => this.row(node)));
    this.feed.replaceChildren(...(picture.events.length ? picture.events.slice(0, 12).map((event) => make("li", {},
      make("time", {}, new Date(event.time * 1000).toLocaleTimeString()),
      make("span", { class: `chip ${{ found: "good", lost: "bad", trouble: "warn" }[event.kind]}` }, event.kind), make("span", {}, event.text)))
      : [make("li", { class: "soft" }, "Nothing since this page was opened.")]));
    if (this.publisher && this.edgesFor !== this.treeKey()) await this.askTree();
    this.draw();
  }

  options(there) {
    const wanted = ["", ...there.map((node) => String(node.node))];
    const now = [...this.choice.options].map((each) => each.value);
    if (wanted.join() !== now.join()) this.choice.replaceChildren(...wanted.map((value) => make("option", { value }, value === "" ? "no publisher" : `node ${value}`)));
    this.choice.value = this.publisher ?? "";
  }

  row(node) {
    const state = !node.is_there ? ["bad", "lost"] : !node.answers ? ["warn", "no answer"] : node.troubles.length ? ["warn", "trouble"] : ["good", "well"];
    const cell = (value, kind = "") => make("td", { class: kind }, value);
    const head = [cell(make("span", {}, this.swatch(node.node), `node ${node.node}`, node.node === this.picture.here ? make("span", { class: "soft" }, " · this one") : "")),
      cell(make("span", { class: `chip ${state[0]}`, title: node.troubles?.join("; ") ?? "" }, state[1])), cell(node.address, "mono")];
    if (!node.answers) return make("tr", {}, ...head, make("td", { colspan: "8" }));
    const days = node.certificate_days;
    return make("tr", {}, ...head, cell(duration(node.uptime_seconds * 1e6, "microseconds"), "n"), cell(number(node.clients), "n"), cell(`${bytes(node.sent_per_second)}/s`, "n"),
      cell(number(node.unfinished), "n"), cell(bytes(node.bytes_uncommitted), "n"), cell(days === null ? "no TLS" : `${Math.floor(days)} days`, "n"),
      cell(node.council ? node.council.map((each) => (node.missing.includes(each) ? `${each}?` : each)).join(", ") : "–"), cell(`${node.protocol}`));
  }

  swatch(node) {
    const dot = make("i", { class: "swatch" });
    dot.style.background = colourOf(node);
    return dot;
  }

  draw() {
    if (!this.picture) return;
    const ratio = devicePixelRatio || 1;
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const { nodes } = this.picture;
    const radius = Math.min(width * 0.42, height * 0.4);
    const place = new Map(nodes.map((node, at) => {
      const angle = (at / nodes.length) * 2 * Math.PI - Math.PI / 2;
      const wide = Math.min(width * 0.4, radius * 1.5);
      return [node.node, nodes.length === 1 ? [width / 2, height / 2] : [width / 2 + Math.cos(angle) * wide, height / 2 + Math.sin(angle) * radius * 0.9]];
    }));
    const isTree = this.edges.length > 0;
    context.lineWidth = 1;
    for (const node of nodes) {
      for (const peer of node.peers ?? []) {
        if (!place.has(peer) || (peer < node.node && nodes.find((each) => each.node === peer)?.peers?.includes(node.node))) continue;
        context.strokeStyle = colour("lane");
        context.globalAlpha = isTree ? 0.35 : 0.85;
        context.beginPath();
        context.moveTo(...place.get(node.node));
        context.lineTo(...place.get(peer));
        context.stroke();
      }
    }
    context.globalAlpha = 1;
    for (const [parent, child] of this.edges) {
      if (place.has(parent) && place.has(child)) arrow(context, place.get(parent), place.get(child), colourOf(Number(this.publisher)));
    }
    const size = nodes.length > 40 ? 7 : 15;
    for (const node of nodes) {
      const [x, y] = place.get(node.node);
      context.beginPath();
      context.arc(x, y, size, 0, 7);
      context.fillStyle = node.is_there ? colour("card") : colour("bad-ground");
      context.fill();
      context.lineWidth = 3;
      context.strokeStyle = !node.is_there ? colour("bad") : node.troubles?.length ? colour("held") : colourOf(node.node);
      if (!node.is_there) context.setLineDash([4, 4]);
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = node.is_there ? colour("text") : colour("bad");
      context.font = "600 12px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      if (size > 10) context.fillText(`${node.node}`, x, y + 0.5);
    }
  }
}

function arrow(context, [x1, y1], [x2, y2], colour) {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const end = [x2 - Math.cos(angle) * 18, y2 - Math.sin(angle) * 18];
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = 2.6;
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(...end);
  context.stroke();
  context.beginPath();
  context.moveTo(...end);
  context.lineTo(end[0] - 11 * Math.cos(angle - 0.4), end[1] - 11 * Math.sin(angle - 0.4));
  context.lineTo(end[0] - 11 * Math.cos(angle + 0.4), end[1] - 11 * Math.sin(angle + 0.4));
  context.closePath();
  context.fill();
}
