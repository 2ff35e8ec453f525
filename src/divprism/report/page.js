"use strict";
(() => {
  const isBlank = (text) => text.trim() === "";
  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;

  function compare(first, second, sign) {
    if (isBlank(first) || isBlank(second)) return isBlank(first) - isBlank(second); // blanks last
    const [a, b] = [Number(first), Number(second)];
    if (!Number.isNaN(a) && !Number.isNaN(b)) return sign * (a - b);
    // Texts with numbers in them, such as the ranks "2-4" and "10", sort by these numbers.
    return sign * first.localeCompare(second, undefined, { numeric: true });
  }

  function sort(head) {
    const table = head.closest("table");
    const isDescending = head.getAttribute("aria-sort") === "ascending";
    const sign = isDescending ? -1 : 1;
    const column = head.cellIndex;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => compare(value(a, column), value(b, column), sign));
    table.tBodies[0].append(...rows);
  }

  // Texts from the data and titles of groups, without the words of the page around them.
  function searchable(gallery) {
    const elements = [...gallery.querySelectorAll(".said, figcaption")];
    return elements.map((element) => element.textContent).join("\n").toLocaleLowerCase();
  }

  function filter(input) {
    const wanted = input.value.trim().toLocaleLowerCase();
    const rows = document.getElementById(input.dataset.target + "-table").tBodies[0].rows;
    let shown = 0;
    for (const row of rows) {
      const gallery = document.getElementById(row.dataset.group);
      const fits = searchable(gallery).includes(wanted);
      row.hidden = gallery.hidden = !fits;
      shown += fits;
    }
    const output = input.parentElement.querySelector("output");
    output.textContent = wanted ? `${shown} of ${rows.length} groups` : "";
  }

  // Open the folded parts around the target of a link, and the target itself.
  function open(hash) {
    let id = hash.slice(1);
    try {
      id = decodeURIComponent(id);
    } catch {
      return; // not a link of this page
    }
    const target = document.getElementById(id);
    if (!target) return;
    let fold = target.closest("details");
    while (fold) {
      fold.open = true;
      fold = fold.parentElement.closest("details");
    }
    if (target instanceof HTMLDetailsElement) target.scrollIntoView();
  }

  // A print shows settings and differences, and folds them again afterwards.
  const unfolded = [];
  function unfold() {
    const folded = "details.settings:not([open]), details.differences:not([open])";
    for (const element of document.querySelectorAll(folded)) {
      element.open = true;
      unfolded.push(element);
    }
  }
  function fold() {
    for (const element of unfolded.splice(0)) element.open = false;
  }

  // Numbers to paste elsewhere. A page in a file may have no access to the clipboard, and then the
  // older command copies what is selected.
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "hidden";
      document.body.append(area);
      area.select();
      const isDone = document.execCommand("copy");
      area.remove();
      return isDone;
    }
  }

  // Buttons are made here: without a script they could not do anything.
  function addButton(label, name, place, text) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = label;
    button.setAttribute("aria-label", `${label} ${name}`);
    button.addEventListener("click", async () => {
      button.textContent = (await copy(text())) ? "Copied" : "Not copied";
      setTimeout(() => { button.textContent = label; }, 1500);
    });
    place.append(button);
  }

  // Columns by tabs, as spreadsheets take them. All digits of a number, and texts that no
  // spreadsheet runs as a formula.
  function asText(table) {
    const cell = (element) => {
      const digits = element.dataset.value;
      const isNumber = element.classList.contains("number") && digits;
      const text = element.dataset.copy ?? element.textContent;
      return (isNumber ? digits : text).replace(/\s+/g, " ").trim();
    };
    return [...table.rows].map((row) => [...row.cells].map(cell).join("\t")).join("\n");
  }

  for (const element of document.querySelectorAll("[data-copy][data-name]")) {
    // Beside the number, not below what it means.
    const number = element.querySelector("strong");
    const place = document.createElement("span");
    place.className = "place";
    (number ?? element.lastChild).after(place);
    addButton("Copy", element.dataset.name, place, () => element.dataset.copy);
  }
  for (const frame of document.querySelectorAll("[data-copy-table]")) {
    const tools = document.createElement("div");
    tools.className = "tools";
    frame.before(tools);
    const table = frame.querySelector("table");
    addButton("Copy table", frame.getAttribute("aria-label"), tools, () => asText(table));
  }

  for (const button of document.querySelectorAll(".sortable th button")) {
    button.addEventListener("click", () => sort(button.closest("th")));
  }
  for (const input of document.querySelectorAll("input[data-target]")) {
    input.addEventListener("input", () => filter(input));
  }
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    // A second click on the same link changes no hash, so there is no "hashchange" event.
    link.addEventListener("click", () => open(link.hash));
  }
  addEventListener("hashchange", () => open(location.hash));
  addEventListener("beforeprint", unfold);
  addEventListener("afterprint", fold);
  open(location.hash);
})();
