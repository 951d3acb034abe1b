// Hints at the nearest point of a figure. Without this script browsers show the titles of points by themselves.
"use strict";
(() => {
  const hint = document.getElementById("hint");
  const reach = 48;
  for (const chart of document.querySelectorAll("svg.chart")) {
    const dots = [...chart.querySelectorAll(".dot")];
    for (const dot of dots) {
      const title = dot.querySelector("title");
      dot.dataset.hint = title.textContent;
      title.remove();
    }
    let lit = null;
    const leave = () => {
      if (lit) lit.classList.remove("lit");
      lit = null;
      hint.hidden = true;
    };
    chart.addEventListener("pointermove", (event) => {
      let best = null;
      let least = reach;
      for (const dot of dots) {
        const box = dot.getBoundingClientRect();
        const dx = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
        const dy = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
        const distance = Math.hypot(dx, dy);
        if (distance <= least) {
          least = distance;
          best = dot;
        }
      }
      if (best !== lit) {
        leave();
        if (!best) return;
        lit = best;
        lit.classList.add("lit");
        const [name, value] = best.dataset.hint.split("\n");
        const strong = document.createElement("b");
        strong.textContent = name;
        hint.replaceChildren(strong, document.createElement("br"), value);
        hint.hidden = false;
      }
      if (!lit) return;
      const box = lit.getBoundingClientRect();
      const width = hint.offsetWidth;
      const left = Math.min(Math.max(8, box.left + box.width / 2 - width / 2), document.documentElement.clientWidth - width - 8);
      const above = box.top - hint.offsetHeight - 10;
      hint.style.left = `${left}px`;
      hint.style.top = `${above > 4 ? above : box.bottom + 10}px`;
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
