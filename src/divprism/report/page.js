"use strict";
(() => {
  const number = (text) => (text.trim() === "" ? NaN : Number(text));
  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;

  function compare(first, second, sign) {
    const [a, b] = [number(first), number(second)];
    if (!Number.isNaN(a) && !Number.isNaN(b)) return sign * (a - b);
    if (Number.isNaN(a) !== Number.isNaN(b)) return Number.isNaN(a) ? 1 : -1; // blanks last, both ways
    return sign * first.localeCompare(second);
  }

  function sort(head) {
    const table = head.closest("table");
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => compare(value(a, head.cellIndex), value(b, head.cellIndex), down ? -1 : 1));
    table.tBodies[0].append(...rows);
  }

  // what strangers said and what groups are called, not our own words around it
  const said = (gallery) => [...gallery.querySelectorAll(".said, figcaption")].map((one) => one.textContent).join("\n");

  function filter(input) {
    const wanted = input.value.trim().toLocaleLowerCase();
    const rows = document.getElementById(input.dataset.target + "-table").tBodies[0].rows;
    let shown = 0;
    for (const row of rows) {
      const gallery = document.getElementById(row.dataset.group);
      const fits = said(gallery).toLocaleLowerCase().includes(wanted);
      row.hidden = gallery.hidden = !fits;
      shown += fits;
    }
    input.parentElement.querySelector("output").textContent = wanted ? `${shown} of ${rows.length} groups` : "";
  }

  function open(hash) {
    let id = hash.slice(1);
    try {
      id = decodeURIComponent(id);
    } catch {
      return; // no place of ours
    }
    const target = document.getElementById(id);
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    if (target instanceof HTMLDetailsElement) target.scrollIntoView();
  }

  const unfolded = []; // for print alone
  const unfold = () => {
    for (const one of document.querySelectorAll("details.settings:not([open]), details.differences:not([open])")) {
      one.open = true;
      unfolded.push(one);
    }
  };
  const fold = () => unfolded.splice(0).forEach((one) => (one.open = false));

  for (const button of document.querySelectorAll(".sortable th button")) {
    button.addEventListener("click", () => sort(button.closest("th")));
  }
  for (const input of document.querySelectorAll("input[data-target]")) {
    input.addEventListener("input", () => filter(input));
  }
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    link.addEventListener("click", () => open(link.hash)); // also the second time, when the hash does not change
  }
  addEventListener("hashchange", () => open(location.hash));
  addEventListener("beforeprint", unfold);
  addEventListener("afterprint", fold);
  open(location.hash);
})();
