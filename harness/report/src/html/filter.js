// The page works without this: it only hides rows that do not match.
const box = document.getElementById("filter");
const rows = [...document.querySelectorAll("[data-text]")];
const shown = document.getElementById("shown");
function apply() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const match = words.every((word) => row.dataset.text.includes(word));
    row.hidden = !match;
    count += match;
  }
  shown.textContent = words.length ? `${count} of ${rows.length}` : `${rows.length}`;
}
box.addEventListener("input", apply);
apply();
