() => {
  // A text belongs to the smallest box that its middle is in, or to the whole picture.
  const whole = document.documentElement.getBoundingClientRect();
  const boxes = [...document.querySelectorAll("rect, ellipse, polygon")].map((e) => e.getBoundingClientRect());
  const found = [];
  for (const text of document.querySelectorAll("text")) {
    const of = text.getBoundingClientRect();
    const x = (of.left + of.right) / 2, y = (of.top + of.bottom) / 2;
    const around = boxes
      .filter((box) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom && box.height > of.height)
      .sort((a, b) => a.width * a.height - b.width * b.height);
    const box = around[0] ?? whole;
    if (of.left < box.left - 1 || of.right > box.right + 1 || of.top < box.top - 2 || of.bottom > box.bottom + 2)
      found.push(text.textContent);
  }
  return found;
}
