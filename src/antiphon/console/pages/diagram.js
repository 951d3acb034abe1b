// The space-time diagram on a canvas: a line per node, an arrow per copy, a dot per delivery, real time from left to right.
//
// The server cuts the stretch that is shown, with a margin on both sides, so moving draws what is there already and asks
// again near the margin. A stretch with too many rows comes as counts per column.

import { colourOf, duration, spoken } from "./tools.js";

const AXIS = 30;
const LANE_AT_LEAST = 17;
const MARGIN = 0.75;
const DELIVER = 1, PUBLISH = 0, DROP = 4, LOST = 16;
const WORDS = { 0: "published", 1: "delivered", 4: "dropped on the way to", 6: "crashed", 7: "restarted", 8: "joined", 9: "left", 10: "paused", 11: "resumed", 16: "reported as lost" };

export class Diagram {
  constructor(canvas, strip, tip, hooks) {
    Object.assign(this, { canvas, strip, tip, hooks });
    this.slice = null;
    this.selection = null;
    this.topic = null;
    this.control = false;
    this.now = null;
    this.pointers = new Map();
    this.frames = 0;
    this.listen();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(canvas);
    this.onTheme = () => { this.readColours(); this.draw(); };
    addEventListener("themechange", this.onTheme);
    this.readColours();
  }

  close() {
    this.observer.disconnect();
    removeEventListener("themechange", this.onTheme);
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(["ground", "card", "line", "text", "soft", "accent", "held", "bad", "lane", "stripe", "past", "future", "good"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.hues = new Map();
    this.theme = (this.theme ?? 0) + 1;
  }

  colour(source, alpha = 1) {
    const key = source * 1000 + Math.round(alpha * 100);
    if (!this.hues.has(key)) this.hues.set(key, colourOf(source, alpha));
    return this.hues.get(key);
  }

  open(run, view = null) {
    const isNew = this.run === undefined || view !== null;
    this.run = run;
    this.laneOf = new Map(run.nodes.map((node, lane) => [node, lane]));
    if (isNew) this.view = view ?? this.whole();
    this.slice = null;
    this.request(0);
    this.draw();
  }

  whole() {
    const span = Math.max(1, this.run.last_time - this.run.first_time);
    return { from: this.run.first_time - span * 0.02, to: this.run.last_time + span * 0.02, lane: 0 };
  }

  get gutter() { return this.canvas.clientWidth < 520 ? 46 : 74; }
  get width() { return Math.max(1, this.canvas.clientWidth - this.gutter - 10); }
  get laneHeight() { return Math.max(LANE_AT_LEAST, Math.min(110, (this.canvas.clientHeight - AXIS - 12) / Math.max(1, this.run.nodes.length))); }
  get lanesShown() { return Math.max(1, Math.floor((this.canvas.clientHeight - AXIS - 12) / this.laneHeight)); }
  x(time) { return this.gutter + ((time - this.view.from) / (this.view.to - this.view.from)) * this.width; }
  timeAt(x) { return this.view.from + ((x - this.gutter) / this.width) * (this.view.to - this.view.from); }
  y(lane) { return AXIS + 6 + (lane - this.view.lane + 0.5) * this.laneHeight; }

  // Moving.

  show(from, to, lane = this.view.lane) {
    const whole = this.whole();
    const span = Math.min(Math.max(to - from, 4), whole.to - whole.from);
    const begin = Math.min(Math.max(from, whole.from), whole.to - span);
    const last = Math.max(0, this.run.nodes.length - this.lanesShown);
    this.view = { from: begin, to: begin + span, lane: Math.min(Math.max(0, lane), last) };
    this.draw();
    this.request();
    this.hooks.moved?.();
  }

  zoom(factor, x = this.gutter + this.width / 2) {
    const time = this.timeAt(x);
    this.show(time - (time - this.view.from) * factor, time + (this.view.to - time) * factor);
  }

  pan(share, lanes = 0) {
    const step = (this.view.to - this.view.from) * share;
    this.show(this.view.from + step, this.view.to + step, this.view.lane + lanes);
  }

  focus(begin, end, nodes) {
    const span = Math.max((end - begin) * 1.8, 20, (this.whole().to - this.whole().from) / 5000);
    const middle = (begin + end) / 2;
    const lanes = nodes.map((node) => this.laneOf.get(node)).filter((lane) => lane !== undefined);
    const top = Math.min(...lanes), bottom = Math.max(...lanes);
    const isSeen = top >= this.view.lane && bottom < this.view.lane + this.lanesShown;
    this.show(middle - span / 2, middle + span / 2, isSeen || !lanes.length ? this.view.lane : Math.max(0, top - 2));
  }

  // Asking.

  isCovered() {
    const { slice, view } = this;
    if (!slice || slice.asked.topic !== this.topic || slice.asked.control !== this.control) return false;
    if (view.from < slice.asked.from || view.to > slice.asked.to) return false;
    if (view.lane < slice.asked.first || view.lane + this.lanesShown > slice.asked.last) return false;
    const ratio = (slice.asked.to - slice.asked.from) / (view.to - view.from);
    return slice.exact ? true : ratio < (1 + 2 * MARGIN) * 1.6;
  }

  request(wait = 40) {
    if (this.isCovered()) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fetch(), wait);
  }

  async fetch() {
    if (this.asking) { this.again = true; return; }
    const span = this.view.to - this.view.from;
    const asked = {
      from: Math.floor(this.view.from - span * MARGIN), to: Math.ceil(this.view.to + span * MARGIN),
      first: Math.max(0, Math.floor(this.view.lane) - this.lanesShown), topic: this.topic, control: this.control,
    };
    asked.last = Math.min(this.run.nodes.length, Math.ceil(this.view.lane) + 2 * this.lanesShown + 1);
    this.asking = true;
    try {
      const slice = await this.hooks.fetch({
        from: asked.from, to: asked.to, first_lane: asked.first, last_lane: asked.last,
        bins: Math.min(2000, Math.round((this.width * (1 + 2 * MARGIN)) / 3)), topic: this.topic ?? undefined, control: this.control ? 1 : 0,
      });
      asked.last = Math.max(asked.last, this.run.nodes.length <= asked.last ? Infinity : asked.last);
      this.slice = { ...slice, asked };
    } catch (error) {
      this.hooks.failed?.(error);
    } finally {
      this.asking = false;
    }
    this.draw();
    this.hooks.drawn?.(this.slice);
    if (this.again) { this.again = false; this.request(0); }
  }

  select(message) {
    this.selection = message;
    this.draw();
  }

  // Drawing.

  draw() {
    if (this.waiting || !this.run) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    this.frames += 1;
    const context = fit(this.canvas);
    const { width, height } = { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
    context.fillStyle = this.colours.card;
    context.fillRect(0, 0, width, height);
    this.paintAxis(context, height);
    context.save();
    context.beginPath();
    // What is played has no future yet.
    const edge = this.now === null ? width : Math.min(width, Math.max(this.gutter - 6, this.x(this.now)));
    context.rect(this.gutter - 6, AXIS, width - this.gutter + 6, height - AXIS);
    context.clip();
    this.paintLanes(context, width);
    context.beginPath();
    context.rect(this.gutter - 6, AXIS, edge - this.gutter + 6, height - AXIS);
    context.save();
    context.clip();
    if (this.selection) this.paintCones(context);
    if (this.slice) {
      if (!this.slice.exact) this.paintCounts(context);
      this.paintArrows(context);
      if (this.slice.exact) { this.paintWaits(context, this.slice.waiting); this.paintDots(context); }
    }
    if (this.selection) this.paintSelection(context);
    context.restore();
    if (this.now !== null) this.paintNow(context, height);
    context.restore();
    this.paintLabels(context, height);
    this.paintScroll(context, width, height);
    this.paintStrip();
  }

  paintAxis(context, height) {
    const span = this.view.to - this.view.from;
    const step = niceStep(span / Math.max(2, this.width / (this.width < 420 ? 75 : 110)));
    context.font = "11.5px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "center";
    const zero = this.run.unit === "microseconds" ? this.run.first_time : 0;
    for (let time = Math.ceil((this.view.from - zero) / step) * step + zero; time <= this.view.to; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      context.strokeStyle = this.colours.line;
      context.lineWidth = 1;
      context.globalAlpha = 0.7;
      context.beginPath();
      context.moveTo(x, AXIS - 6);
      context.lineTo(x, height);
      context.stroke();
      context.globalAlpha = 1;
      context.fillStyle = this.colours.soft;
      context.fillText(this.label(time, step), x, AXIS / 2 - 1);
    }
  }

  label(time, step) {
    const since = time - this.run.first_time;
    if (this.run.unit !== "microseconds") return (Math.round(time) || 0).toLocaleString("en-US");
    if (step < 1000) return `${(since / 1000).toFixed(step < 100 ? 2 : 1)} ms`;
    if (step < 1e6) return since >= 1e6 ? `${(since / 1e6).toFixed(step < 10_000 ? 3 : step < 100_000 ? 2 : 1)} s` : `${Math.round(since / 1000)} ms`;
    return `${Math.round(since / 1e6)} s`;
  }

  *lanes() {
    const last = Math.min(this.run.nodes.length, Math.ceil(this.view.lane + this.lanesShown + 1));
    for (let lane = Math.floor(this.view.lane); lane < last; lane += 1) yield lane;
  }

  paintLanes(context, width) {
    for (const lane of this.lanes()) {
      const y = this.y(lane);
      context.strokeStyle = this.colours.lane;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(this.gutter, Math.round(y) + 0.5);
      context.lineTo(width, Math.round(y) + 0.5);
      context.stroke();
    }
    for (const [lane, from, to, kind] of this.run.absences ?? []) {
      const left = Math.max(this.x(from), this.gutter - 6);
      const right = Math.min(to === null ? width : this.x(to), width, this.now === null ? width : this.x(this.now));
      if (right < left) continue;
      context.fillStyle = kind === "paused" ? this.colours.held : this.colours.bad;
      context.globalAlpha = 0.13;
      const half = Math.min(this.laneHeight * 0.42, 12);
      context.fillRect(left, this.y(lane) - half, right - left, half * 2);
      context.globalAlpha = 1;
      if (right - left > 50 && this.laneHeight >= 16) {
        context.font = "11px system-ui, sans-serif";
        context.textAlign = "left";
        context.fillText(kind, left + 6, this.y(lane) - 0.5);
      }
    }
  }

  paintLabels(context, height) {
    context.fillStyle = this.colours.card;
    context.fillRect(0, AXIS, this.gutter - 6, height - AXIS);
    context.textAlign = "right";
    context.textBaseline = "middle";
    const isNarrow = this.gutter < 60;
    context.font = `${this.laneHeight < 15 ? 10.5 : 12}px system-ui, sans-serif`;
    for (const lane of this.lanes()) {
      const node = this.run.nodes[lane];
      const y = this.y(lane);
      if (y < AXIS + 4 || y > height - 4) continue;
      context.fillStyle = this.colour(node);
      context.beginPath();
      context.arc(this.gutter - 14, y, 3.2, 0, 7);
      context.fill();
      context.fillStyle = this.colours.text;
      context.fillText(isNarrow ? `${node}` : `node ${node}`, this.gutter - 22, y);
    }
  }

  paintScroll(context, width, height) {
    const count = this.run.nodes.length;
    if (this.lanesShown >= count) return;
    const room = height - AXIS - 8;
    const tall = Math.max(24, (room * this.lanesShown) / count);
    const top = AXIS + 4 + ((room - tall) * this.view.lane) / Math.max(1, count - this.lanesShown);
    context.fillStyle = this.colours.soft;
    context.globalAlpha = 0.45;
    roundBar(context, width - 8, top, 5, tall);
    context.globalAlpha = 1;
  }

  paintCones(context) {
    const half = this.laneHeight * 0.5;
    const right = this.canvas.clientWidth;
    for (const [pairs, colour, isPast] of [[this.selection.past, this.colours.past, true], [this.selection.future, this.colours.future, false]]) {
      context.fillStyle = colour;
      for (const [node, time] of pairs) {
        const lane = this.laneOf.get(node);
        const x = Math.min(Math.max(this.x(time), this.gutter - 6), right);
        if (isPast) context.fillRect(this.gutter - 6, this.y(lane) - half, x - this.gutter + 6, half * 2);
        else context.fillRect(x, this.y(lane) - half, right - x, half * 2);
      }
    }
  }

  // Counts are many rectangles, so they are drawn once per slice; moving only places the finished picture.
  paintCounts(context) {
    const { slice } = this;
    const lanes = Math.min(this.run.nodes.length, slice.asked.last) - slice.first_lane;
    const high = Math.round(this.laneHeight);
    const key = `${high} ${lanes} ${this.theme}`;
    if (slice.pictureKey !== key) {
      slice.picture = this.pictureOfCounts(slice, lanes, high);
      slice.pictureKey = key;
    }
    if (slice.picture.width === 0 || slice.picture.height === 0) return;
    const left = this.x(slice.begin), right = this.x(slice.end);
    const top = this.y(slice.first_lane) - this.laneHeight / 2;
    context.imageSmoothingEnabled = false;
    context.globalAlpha = this.selection ? 0.35 : 1;
    context.drawImage(slice.picture, left, top, right - left, lanes * this.laneHeight);
    context.globalAlpha = 1;
  }

  pictureOfCounts(slice, lanes, high) {
    const picture = document.createElement("canvas");
    picture.width = slice.bins * 2;
    picture.height = Math.max(1, lanes * high);
    const context = picture.getContext("2d");
    const half = high * 0.46;
    const most = Math.max(1, maximum(slice.delivered));
    const slowest = Math.max(1, maximum(slice.longest_wait));
    const each = (chosen, colour, alpha, draw) => {
      context.fillStyle = colour;
      context.globalAlpha = alpha;
      for (let place = 0; place < slice.cell.length; place += 1) {
        if (!chosen[place]) continue;
        const cell = slice.cell[place];
        draw((cell % slice.bins) * 2, (Math.floor(cell / slice.bins) + 0.5) * high, chosen[place]);
      }
    };
    each(slice.delivered, this.colours.accent, 0.62, (x, y, count) => {
      const tall = half * Math.sqrt(count / most) + 1;
      context.fillRect(x, y - tall, 2, tall * 2);
    });
    each(slice.longest_wait, this.colours.held, 0.95, (x, y, wait) => {
      const tall = half * Math.sqrt(wait / slowest);
      if (wait > 0) context.fillRect(x, y - tall * 0.5, 2, tall);
    });
    each(slice.trouble, this.colours.bad, 1, (x, y) => context.fillRect(x, y - half, 3, 3));
    return picture;
  }

  paintArrows(context) {
    const { arrows } = this.slice;
    const count = arrows.message.length;
    const isFine = this.slice.exact;
    const chosen = this.selection?.message;
    const alpha = !isFine ? 0.22 : count > 3000 ? 0.3 : count > 800 ? 0.45 : 0.75;
    const hasHeads = isFine && count < 1500 && this.laneHeight > 12;
    const groups = new Map();
    for (let place = 0; place < count; place += 1) {
      const from = this.x(arrows.from_time[place]), to = this.x(arrows.to_time[place]);
      if ((from < this.gutter - 20 && to < this.gutter - 20) || from > this.canvas.clientWidth) continue;
      if (arrows.message[place] === chosen && arrows.carries[place]) continue;
      const kind = arrows.lost[place] ? "lost" : arrows.carries[place] ? arrows.source[place] : "control";
      if (!groups.has(kind)) groups.set(kind, []);
      groups.get(kind).push(from, this.y(arrows.from_lane[place]), to, this.y(arrows.to_lane[place]));
    }
    const dim = chosen === undefined ? 1 : 0.25;
    for (const [kind, lines] of groups) {
      const colour = kind === "lost" ? this.colours.bad : kind === "control" ? this.colours.soft : this.colour(kind);
      context.globalAlpha = (kind === "lost" ? 0.9 : kind === "control" ? 0.3 : alpha) * dim;
      strokeArrows(context, lines, colour, kind === "control" ? 0.8 : 1.2, hasHeads && kind !== "lost", kind === "lost");
    }
    context.globalAlpha = 1;
  }

  // What a node received and never delivered: a wait without an end.
  paintWaits(context, waits) {
    const size = Math.min(5, Math.max(2.4, this.laneHeight * 0.16));
    const chosen = this.selection?.message;
    context.strokeStyle = this.colours.held;
    context.lineWidth = size * 0.7;
    context.setLineDash([7, 4]);
    for (let place = 0; place < waits.time.length; place += 1) {
      context.globalAlpha = chosen === undefined || waits.message[place] === chosen ? 1 : 0.22;
      context.beginPath();
      context.moveTo(this.x(waits.time[place]), this.y(waits.lane[place]));
      context.lineTo(Math.min(this.x(waits.until[place]), this.canvas.clientWidth + 20), this.y(waits.lane[place]));
      context.stroke();
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  paintDots(context) {
    const { slice } = this;
    const size = Math.min(5, Math.max(2.4, this.laneHeight * 0.16));
    const chosen = this.selection?.message;
    const isSparse = slice.row.length < 160;
    for (let place = 0; place < slice.row.length; place += 1) {
      const x = this.x(slice.time[place]);
      const held = slice.held[place];
      if (x < this.gutter - 20 || (held > 0 ? this.x(slice.time[place] - held) : x) > this.canvas.clientWidth + 20) continue;
      const y = this.y(slice.lane[place]);
      const isChosen = slice.message[place] === chosen && chosen >= 0;
      context.globalAlpha = chosen === undefined || isChosen ? 1 : 0.22;
      if (held > 0) {
        const left = this.x(slice.time[place] - held);
        context.fillStyle = this.colours.held;
        roundBar(context, left, y - size * 0.55, Math.max(1, x - left), size * 1.1);
      }
      this.dot(context, x, y, slice.event[place], slice.source[place], isChosen ? size * 1.45 : size);
      if (isSparse && slice.event[place] === PUBLISH && this.laneHeight > 20) {
        context.fillStyle = this.colours.soft;
        context.font = "11px system-ui, sans-serif";
        context.textAlign = "left";
        context.fillText(spoken(slice.sequence[place]), x + size + 4, y - size - 5);
      }
    }
    context.globalAlpha = 1;
  }

  dot(context, x, y, event, source, size) {
    context.beginPath();
    if (event === PUBLISH) {
      context.arc(x, y, size * 1.35, 0, 7);
      context.fillStyle = this.colours.card;
      context.fill();
      context.lineWidth = 2.2;
      context.strokeStyle = this.colour(source);
      context.stroke();
    } else if (event === DELIVER) {
      context.arc(x, y, size, 0, 7);
      context.fillStyle = this.colour(source);
      context.fill();
    } else if (event === DROP || event === LOST) {
      cross(context, x, y, size, this.colours.bad);
    } else {
      context.fillStyle = event === 10 || event === 11 ? this.colours.held : event === 6 || event === 9 ? this.colours.bad : this.colours.good;
      context.fillRect(x - 1.5, y - size * 2, 3, size * 4);
    }
  }

  paintSelection(context) {
    const { selection } = this;
    const hops = selection.hops ?? [];
    const colour = this.colour(selection.source);
    const line = (from, a, to, b) => [this.x(from), this.y(this.laneOf.get(a)), this.x(to), this.y(this.laneOf.get(b))];
    if (this.slice) {
      const { arrows } = this.slice;
      const lines = [];
      for (let place = 0; place < arrows.message.length; place += 1) {
        if (arrows.message[place] !== selection.message || !arrows.carries[place]) continue;
        lines.push(this.x(arrows.from_time[place]), this.y(arrows.from_lane[place]), this.x(arrows.to_time[place]), this.y(arrows.to_lane[place]));
      }
      strokeArrows(context, lines, colour, 1.8, true);
    }
    strokeArrows(context, hops.flatMap((hop) => line(hop.sent, hop.sender, hop.arrived, hop.receiver)), colour, 3.2, true);
    const size = Math.min(6.5, Math.max(3.4, this.laneHeight * 0.22));
    for (const each of selection.deliveries) {
      const y = this.y(this.laneOf.get(each.node));
      if (each.held > 0) {
        const left = this.x(each.time - each.held);
        context.fillStyle = this.colours.held;
        roundBar(context, left, y - size * 0.6, Math.max(2, this.x(each.time) - left), size * 1.2);
      }
      this.dot(context, this.x(each.time), y, DELIVER, selection.source, size);
      if (each.node === selection.seen_from) {
        context.lineWidth = 2;
        context.strokeStyle = this.colours.text;
        context.beginPath();
        context.arc(this.x(each.time), y, size + 4, 0, 7);
        context.stroke();
      }
    }
    if (selection.published !== null) this.dot(context, this.x(selection.published), this.y(this.laneOf.get(selection.source)), PUBLISH, selection.source, size);
    const step = selection.step;
    if (step) {
      const y = this.y(this.laneOf.get(step.node));
      const left = this.x(step.begin);
      context.strokeStyle = this.colours.text;
      context.lineWidth = 1.6;
      context.setLineDash([4, 3]);
      context.strokeRect(left - 5, y - this.laneHeight * 0.42, Math.max(8, this.x(step.end) - left + 10), this.laneHeight * 0.84);
      context.setLineDash([]);
    }
  }

  paintNow(context, height) {
    const x = this.x(this.now);
    context.strokeStyle = this.colours.accent;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, AXIS);
    context.lineTo(x, height);
    context.stroke();
  }

  paintStrip() {
    const context = fit(this.strip);
    const width = this.strip.clientWidth, height = this.strip.clientHeight;
    if (width === 0 || height === 0) return;  // the page has no layout yet
    const whole = this.whole();
    const place = (time) => 10 + ((time - whole.from) / (whole.to - whole.from)) * (width - 20);
    const key = `${this.strip.width} ${this.strip.height} ${this.theme}`;
    if (this.stripKey !== key || this.stripOf !== this.run) {
      this.stripPicture = this.pictureOfStrip(place, width, height);
      this.stripKey = key;
      this.stripOf = this.run;
    }
    context.drawImage(this.stripPicture, 0, 0, width, height);
    const left = place(this.view.from), right = Math.max(place(this.view.to), left + 4);
    context.fillStyle = this.colours.past;
    context.fillRect(left, 1, right - left, height - 2);
    context.strokeStyle = this.colours.accent;
    context.lineWidth = 2;
    context.strokeRect(left, 1.5, right - left, height - 3);
  }

  pictureOfStrip(place, width, height) {
    const picture = document.createElement("canvas");
    picture.width = this.strip.width;
    picture.height = this.strip.height;
    const context = picture.getContext("2d");
    context.scale(picture.width / width, picture.height / height);
    const { activity } = this.run;
    context.fillStyle = this.colours.card;
    context.fillRect(0, 0, width, height);
    const most = Math.max(1, maximum(activity.delivered));
    const step = (this.run.last_time - this.run.first_time) / activity.delivered.length;
    activity.delivered.forEach((count, bin) => {
      const tall = count ? 2 + Math.sqrt(count / most) * (height - 14) : 0;
      const x = place(this.run.first_time + bin * step);
      context.fillStyle = this.colours.soft;
      context.globalAlpha = 0.5;
      context.fillRect(x, height - 4 - tall, Math.max(1, place(this.run.first_time + (bin + 1) * step) - x - 0.5), tall);
      if (!activity.trouble[bin]) return;
      context.globalAlpha = 1;
      context.fillStyle = this.colours.bad;
      context.fillRect(x, 3, 3, 5);
    });
    return picture;
  }

  // Pointer and keys.

  hit(x, y) {
    if (!this.slice?.exact) return null;
    const { slice } = this;
    let best = null, nearest = 12;
    for (let place = 0; place < slice.row.length; place += 1) {
      const dy = this.y(slice.lane[place]) - y;
      if (Math.abs(dy) > 12) continue;
      if (this.now !== null && slice.time[place] > this.now) continue;
      const distance = Math.hypot(this.x(slice.time[place]) - x, dy);
      if (distance <= nearest) { nearest = distance; best = place; }
    }
    if (best !== null) return best;
    // A wait is a bar; anywhere on it is its delivery.
    for (let place = 0; place < slice.row.length; place += 1) {
      if (slice.held[place] <= 0 || Math.abs(this.y(slice.lane[place]) - y) > 7) continue;
      if (x >= this.x(slice.time[place] - slice.held[place]) && x <= this.x(slice.time[place])) return place;
    }
    return null;
  }

  hitWait(x, y) {
    if (!this.slice?.exact) return null;
    const { waiting } = this.slice;
    const found = waiting.time.findIndex((time, place) => Math.abs(this.y(waiting.lane[place]) - y) < 7 && x >= this.x(time) && x <= this.x(Math.min(waiting.until[place], this.now ?? Infinity)));
    return found < 0 ? null : found;
  }

  describe(place) {
    const { slice } = this;
    const node = this.run.nodes[slice.lane[place]];
    const when = this.run.unit === "microseconds" ? duration(slice.time[place] - this.run.first_time, this.run.unit) : `time ${slice.time[place].toLocaleString("en-US")}`;
    const what = slice.sequence[place] < 0 ? `node ${node} ${WORDS[slice.event[place]]}` :
      slice.event[place] === DROP ? `message ${spoken(slice.sequence[place])} of node ${slice.source[place]} was dropped on the way to node ${node}` :
      `node ${node} ${WORDS[slice.event[place]]} message ${spoken(slice.sequence[place])}${slice.source[place] === node ? "" : ` of node ${slice.source[place]}`}`;
    const held = slice.held[place] > 0 ? `\nheld for ${duration(slice.held[place], this.run.unit)}` : "";
    return `${what}\n${when}${held}`;
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x] = this.point(event);
      if (event.shiftKey) this.pan(0, Math.sign(event.deltaY || event.deltaX) * 2);
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / this.width);
      else this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), x);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.point(event));
      this.grabbed = { at: this.point(event), moved: false };
      canvas.classList.add("moving");
    });
    canvas.addEventListener("pointermove", (event) => this.movePointer(event));
    const end = (event) => {
      this.pointers.delete(event.pointerId);
      canvas.classList.remove("moving");
    };
    canvas.addEventListener("pointerup", (event) => {
      const isClick = this.grabbed && !this.grabbed.moved && this.pointers.size === 1;
      end(event);
      if (isClick) this.click(...this.point(event));
    });
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("keydown", (event) => this.key(event));
    const jump = (event) => {
      if (!event.buttons && event.type === "pointermove") return;
      const box = this.strip.getBoundingClientRect();
      const whole = this.whole();
      const time = whole.from + ((event.clientX - box.left - 10) / (box.width - 20)) * (whole.to - whole.from);
      const half = (this.view.to - this.view.from) / 2;
      this.show(time - half, time + half);
    };
    this.strip.addEventListener("pointerdown", (event) => { this.strip.setPointerCapture(event.pointerId); jump(event); });
    this.strip.addEventListener("pointermove", jump);
  }

  movePointer(event) {
    const now = this.point(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.hover(...now);
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const ratio = Math.max(8, Math.abs(before[0] - other[0])) / Math.max(8, Math.abs(now[0] - other[0]));
      this.pointers.set(event.pointerId, now);
      this.grabbed.moved = true;
      return this.zoom(ratio, (now[0] + other[0]) / 2);
    }
    if (Math.hypot(now[0] - this.grabbed.at[0], now[1] - this.grabbed.at[1]) > 4) this.grabbed.moved = true;
    if (!this.grabbed.moved) return undefined;
    this.pointers.set(event.pointerId, now);
    this.tip.hidden = true;
    return this.pan(-(now[0] - before[0]) / this.width, -(now[1] - before[1]) / this.laneHeight);
  }

  hover(x, y) {
    const place = this.hit(x, y), wait = place === null ? this.hitWait(x, y) : null;
    this.tip.hidden = place === null && wait === null;
    if (this.tip.hidden) return;
    const { waiting } = this.slice;
    this.tip.textContent = place !== null ? this.describe(place) :
      `node ${this.run.nodes[waiting.lane[wait]]} received message ${spoken(waiting.sequence[wait])} of node ${waiting.source[wait]}\nand never delivered it`;
    const left = x + 16 + this.tip.offsetWidth > this.canvas.clientWidth ? x - this.tip.offsetWidth - 12 : x + 16;
    this.tip.style.left = `${Math.max(4, left)}px`;
    this.tip.style.top = `${Math.max(4, y - this.tip.offsetHeight - 8)}px`;
  }

  click(x, y) {
    const place = this.hit(x, y);
    if (place !== null && this.slice.message[place] >= 0) {
      const node = this.run.nodes[this.slice.lane[place]];
      this.hooks.chosen({ message: this.slice.message[place], node: this.slice.event[place] === DELIVER ? node : undefined });
    } else if (place === null && this.hitWait(x, y) !== null) {
      const wait = this.hitWait(x, y);
      this.hooks.chosen({ message: this.slice.waiting.message[wait], node: this.run.nodes[this.slice.waiting.lane[wait]] });
    } else if (!this.slice?.exact && x > this.gutter) {
      this.zoom(0.2, x);
    } else if (this.selection) {
      this.hooks.chosen(null);
    }
  }

  key(event) {
    const keys = {
      ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15), ArrowUp: () => this.pan(0, -1), ArrowDown: () => this.pan(0, 1),
      PageUp: () => this.pan(0, -this.lanesShown), PageDown: () => this.pan(0, this.lanesShown),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1.7), Home: () => this.show(this.whole().from, this.whole().to, 0),
      Escape: () => this.hooks.chosen(null), n: () => this.step(1), p: () => this.step(-1),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  }

  // The next or previous dot from the chosen one, for those who use keys.
  step(direction) {
    if (!this.slice?.exact) return;
    const { slice } = this;
    const places = slice.row.map((_, place) => place).filter((place) => slice.message[place] >= 0 && slice.time[place] >= this.view.from && slice.time[place] <= this.view.to);
    if (!places.length) return;
    const at = places.findIndex((place) => slice.row[place] === this.stepped);
    const next = places[at < 0 ? (direction > 0 ? 0 : places.length - 1) : (at + direction + places.length) % places.length];
    this.stepped = slice.row[next];
    this.hooks.said?.(this.describe(next));
    this.hooks.chosen({ message: slice.message[next], node: slice.event[next] === DELIVER ? this.run.nodes[slice.lane[next]] : undefined });
  }
}

function fit(canvas) {
  const ratio = devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  return Math.max(1, step);
}

export function maximum(values) {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
}

function strokeArrows(context, lines, colour, wide, hasHeads, isLost = false) {
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = wide;
  context.setLineDash(isLost ? [5, 4] : []);
  context.beginPath();
  for (let at = 0; at < lines.length; at += 4) {
    context.moveTo(lines[at], lines[at + 1]);
    context.lineTo(lines[at + 2], lines[at + 3]);
  }
  context.stroke();
  context.setLineDash([]);
  if (!hasHeads) return;
  context.beginPath();
  for (let at = 0; at < lines.length; at += 4) {
    const [x1, y1, x2, y2] = lines.slice(at, at + 4);
    const angle = Math.atan2(y2 - y1, x2 - x1);
    const long = 5 + wide * 1.6;
    const tip = [x2 - Math.cos(angle) * 3.5, y2 - Math.sin(angle) * 3.5];
    context.moveTo(...tip);
    context.lineTo(tip[0] - long * Math.cos(angle - 0.38), tip[1] - long * Math.sin(angle - 0.38));
    context.lineTo(tip[0] - long * Math.cos(angle + 0.38), tip[1] - long * Math.sin(angle + 0.38));
    context.closePath();
  }
  context.fill();
}

function roundBar(context, x, y, width, height) {
  context.beginPath();
  context.roundRect(x, y, width, height, Math.min(height / 2, width / 2));
  context.fill();
}

function cross(context, x, y, size, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x - size, y - size);
  context.lineTo(x + size, y + size);
  context.moveTo(x + size, y - size);
  context.lineTo(x - size, y + size);
  context.stroke();
}
