// Numbers, times and durations in words.
export const known = (value, words) => (value == null ? "unknown" : words(value));
export const clockTime = (unixMs) => new Date(unixMs).toISOString().slice(11, 19);
export const machineTime = (unixMs) => `${new Date(unixMs).toISOString().slice(0, 19)}Z`;
export const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
export const sum = (values) => values.reduce((a, b) => a + b, 0);
export const two = (value) => Math.round(value * 100) / 100;
// Of a share, as SVG and CSS have it.
export const percent = (share) => `${two(share * 100)}%`;

// Digits in groups, with a narrow space that does not break.
export const number = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");

// The two largest units: 41 s, 3 min 7 s, 2 h 5 min, 9 d 3 h.
export function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const [large, small] =
    s < 60 ? [`${s} s`]
    : s < 3600 ? [`${Math.floor(s / 60)} min`, s % 60 && `${s % 60} s`]
    : s < 86_400 ? [`${Math.floor(s / 3600)} h`, Math.floor(s / 60) % 60 && `${Math.floor(s / 60) % 60} min`]
    : [`${Math.floor(s / 86_400)} d`, Math.floor(s / 3600) % 24 && `${Math.floor(s / 3600) % 24} h`];
  return small ? `${large} ${small}` : large;
}

export const ago = (ms) => `${ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : duration(ms / 1000)} ago`;

// Two or three digits: 0.82 ms, 8.2 ms, 82 ms, 1.2 s.
export function millis(ms) {
  if (ms < 0.995) return `${ms.toFixed(2)} ms`;
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${ms.toFixed(0)} ms`;
  return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
}

// In units of 1000.
export function bytes(n) {
  const power = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.max(n, 1)) / 3)));
  const value = n / 1000 ** power;
  return `${value.toFixed(power === 0 || value >= 99.5 ? 0 : 1)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

export const percentage = (share) => `${(share * 100).toFixed(0)} %`;
