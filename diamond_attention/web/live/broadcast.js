// Who hears which number. An agent always knows its own; of a peer whose number is lost it draws one itself.

/** What the viewer makes of everybody's numbers, its own first, and whose number it has heard. */
export function hear(numbers, viewer, lost, random) {
  const order = viewerFirst(viewer, numbers.length);
  const heard = order.map((agent) => agent === viewer || lost === 0 || random.number() >= lost);
  return { order, heard, ranks: order.map((agent, i) => (heard[i] ? numbers[agent] : random.number())) };
}

/** Itself, then everybody else by index; 2 of 4: [2, 0, 1, 3]. */
export function viewerFirst(viewer, number) {
  const others = Array.from({ length: number }, (_, agent) => agent).filter((agent) => agent !== viewer);
  return [viewer, ...others];
}
