() => {
  const found = [];
  const wide = document.scrollingElement.scrollWidth;
  if (wide > innerWidth + 1) found.push(`page: ${wide}`);
  const shown = (e) => e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true});
  for (const element of document.querySelectorAll(".md-content *")) {
    if (!shown(element)) continue;
    const style = getComputedStyle(element), box = element.getBoundingClientRect();
    const name = `${element.tagName.toLowerCase()}.${element.className}: ${element.textContent.trim().slice(0, 40)}`;
    const scrolls = element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0;
    if (scrolls && /hidden|clip/.test(style.overflowX) && box.width > 1 && !style.clipPath.includes("inset"))
      found.push(`clipped ${name}`);
    if (scrolls && /auto|scroll/.test(style.overflowX) && element.querySelector("table") && !element.closest(".highlight"))
      found.push(`table ${name}`);
    if (box.right > innerWidth + 1 && !element.closest("pre, .highlight, svg"))
      found.push(`outside ${name}`);
  }
  return found;
}
