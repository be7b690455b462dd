// Numbers, times and keys as people read them.

const many = new Intl.NumberFormat("en");

/** 12,345 */
export const count = (n) => many.format(n);

/** A span of milliseconds in one or two units: 0.4 s, 12 s, 3 m 12 s, 2 h 5 m, 3 d 4 h. */
export function span(ms) {
  if (ms === undefined || ms === null || Number.isNaN(ms)) return "–";
  const s = Math.max(0, ms) / 1000;
  if (ms > 0 && s < 0.0995) return `${Math.max(1, Math.round(ms))} ms`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 59.5) return `${Math.round(s)} s`;
  const whole = Math.round(s);
  const [d, h, m] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24,
    Math.floor(whole / 60) % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} m`;
  return `${m} m ${whole % 60} s`;
}

const time = new Intl.DateTimeFormat(undefined,
  { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** The time of day, with the day where it is not today. */
export function clock(atMs) {
  const at = new Date(atMs);
  const today = at.toDateString() === new Date().toDateString();
  return today ? time.format(at) : `${day.format(at)} ${time.format(at)}`;
}

/** A fence in two parts: fences of one store begin alike, and the end tells them apart. */
export function fence(n) {
  const text = String(n);
  return text.length <= 7 ? ["", text] : [text.slice(0, -6), text.slice(-6)];
}

/** A word for a shell, quoted where it must be. */
export function shell(text) {
  return /^[\w@%+=:,./-]+$/.test(text) && !text.startsWith("-")
    ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The middle of some numbers; none of none. */
export function median(numbers) {
  if (!numbers.length) return undefined;
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}
