const input = document.getElementById("find");
if (input) {
  const parts = [...document.querySelectorAll("[data-find]")].map((part) => [part, part.textContent.toLowerCase()]);
  const groups = document.querySelectorAll("[data-group]");
  const search = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const [part, text] of parts) {
      part.hidden = !words.every((word) => text.includes(word));
      found += !part.hidden;
    }
    for (const group of groups) group.hidden = !group.querySelector("[data-find]:not([hidden])");
    document.getElementById("count").textContent = words.length ? `${found} of ${parts.length}` : "";
  };
  input.addEventListener("input", search);
  const asked = new URLSearchParams(location.search).get("find");
  if (asked) input.value = asked;
  search();
}
