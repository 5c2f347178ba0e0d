/** Numbers in [0, 1) with 23 random bits, as agents draw them; the same seed gives the same ones. */
export class Random {
  constructor(seed) {
    this.state = seed >>> 0;
  }

  // “Mulberry32”, a counter and a mixture of its bits.
  number() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 9) / 2 ** 23;
  }

  between(low, high) {
    return low + (high - low) * this.number();
  }

  place() {
    return { x: this.between(-1, 1), y: this.between(-1, 1) };
  }

  normal() {
    return Math.sqrt(-2 * Math.log(1 - this.number())) * Math.cos(2 * Math.PI * this.number());
  }

  gumbel() {
    return -Math.log(-Math.log(this.number() || 2 ** -24));
  }
}
