// The theme's buttons that unfold a part of the navigation have a picture and no name.
document.addEventListener("DOMContentLoaded", () => {
  for (const toggle of document.querySelectorAll("summary:has(.toctree-toggle)")) {
    const link = toggle.closest("li").querySelector("a");
    toggle.setAttribute("aria-label", `Pages below ${link.textContent.trim()}`);
  }
});
