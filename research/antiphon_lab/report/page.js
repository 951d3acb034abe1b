// Hints at the nearest point of a figure, and at those that lie on top of it. Without this script browsers show the
// titles of points by themselves.
"use strict";
(() => {
  const hint = document.getElementById("hint");
  const reach = 48;
  const together = 3;
  const most = 5;

  const distance = (box, event) =>
    Math.hypot(
      Math.max(box.left - event.clientX, 0, event.clientX - box.right),
      Math.max(box.top - event.clientY, 0, event.clientY - box.bottom),
    );

  const say = (dots) => {
    const lines = dots.flatMap((dot) => {
      const [name, value] = dot.dataset.hint.split("\n");
      const strong = document.createElement("b");
      strong.textContent = name;
      const line = document.createElement("div");
      line.append(strong, document.createElement("br"), value);
      return line;
    });
    hint.replaceChildren(...lines);
    hint.hidden = false;
    const box = dots[0].getBoundingClientRect();
    const rightmost = document.documentElement.clientWidth - hint.offsetWidth - 8;
    const above = box.top - hint.offsetHeight - 10;
    hint.style.left = `${Math.min(Math.max(8, box.left + box.width / 2 - hint.offsetWidth / 2), rightmost)}px`;
    hint.style.top = `${above > 4 ? above : box.bottom + 10}px`;
  };

  for (const chart of document.querySelectorAll("svg.chart")) {
    const dots = [...chart.querySelectorAll(".dot")];
    for (const dot of dots) {
      const title = dot.querySelector("title");
      dot.dataset.hint = title.textContent;
      title.remove();
    }
    let lit = [];
    const leave = () => {
      for (const dot of lit) dot.classList.remove("lit");
      lit = [];
      hint.hidden = true;
    };
    chart.addEventListener("pointermove", (event) => {
      const far = dots.map((dot) => distance(dot.getBoundingClientRect(), event));
      const least = Math.min(...far);
      leave();
      if (!(least <= reach)) return;
      lit = dots.filter((_, place) => far[place] <= least + together).slice(0, most);
      for (const dot of lit) dot.classList.add("lit");
      say(lit);
    });
    chart.addEventListener("pointerleave", leave);
  }

  // A link to something inside a closed part of the page opens that part.
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  };
  addEventListener("hashchange", open);
  open();
})();
