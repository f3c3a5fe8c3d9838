"use strict";
// Without this script the page shows the same: it sorts tables, opens what a link leads into, and marks the place.

const NUMBER = /^[~+-]?[\d,]*\.?\d+(e[+-]?\d+)?/i;

function valueOf(row, column) {
  const cell = row.cells[column];
  const lines = cell ? Array.from(cell.childNodes).filter((node) => node.nodeName !== "SMALL") : [];
  const text = lines.map((node) => node.textContent).join("").trim();
  const number = NUMBER.exec(text.replace(/^\w+ = /, ""));  // "B = 256" is a number, too
  return number ? [0, parseFloat(number[0].replace(/[~,]/g, "")), text] : [text ? 1 : 2, 0, text];
}

function compare(one, other) {
  return one[0] - other[0] || one[1] - other[1] || one[2].localeCompare(other[2], "en", { numeric: true });
}

function sortBy(head, column) {
  const falling = head.getAttribute("aria-sort") === "ascending";
  const body = head.closest("table").tBodies[0];
  const rows = Array.from(body.rows, (row) => ({ row, value: valueOf(row, column) }));
  rows.sort((one, other) => (one.value[0] === 2 || other.value[0] === 2)
    ? one.value[0] - other.value[0]  // an empty cell stays last
    : (falling ? -1 : 1) * compare(one.value, other.value));
  body.append(...rows.map((each) => each.row));
  for (const each of head.parentNode.cells) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falling ? "descending" : "ascending");
}

for (const table of document.querySelectorAll("main table")) {
  const heads = table.tHead ? table.tHead.rows[table.tHead.rows.length - 1].cells : [];
  if (!table.tBodies[0] || table.tBodies[0].rows.length < 2) continue;
  Array.from(heads).forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.append(...head.childNodes);
    button.title = "sort by this column";
    button.addEventListener("click", () => sortBy(head, column));
    head.append(button);
  });
}

function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const folded = target.closest("details") || target.querySelector("details.folded");
  if (folded && !folded.open) {
    folded.open = true;
    target.scrollIntoView();
  }
}

addEventListener("hashchange", openTarget);
openTarget();

const links = Array.from(document.querySelectorAll("nav a"));
const menu = document.querySelector("nav.menu details");
for (const link of links) link.addEventListener("click", () => { if (menu) menu.open = false; });

const side = document.querySelector("nav.side");

function showInContents(link) {
  const [top, bottom] = [link.offsetTop, link.offsetTop + link.offsetHeight];
  const isInView = top >= side.scrollTop && bottom <= side.scrollTop + side.clientHeight;
  if (!isInView) side.scrollTop = top - side.clientHeight / 2;
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((each) => each.isIntersecting)) {
    for (const link of links) {
      if (link.hash === `#${entry.target.id}`) {
        link.setAttribute("aria-current", "true");
        if (side.contains(link)) showInContents(link);
      } else link.removeAttribute("aria-current");
    }
  }
}, { rootMargin: "-10% 0px -80% 0px" });
for (const section of document.querySelectorAll("main > section")) seen.observe(section);
