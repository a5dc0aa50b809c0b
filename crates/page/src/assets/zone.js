// Times in the time zone of the box, which may not be that of the browser.

const FIELDS = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const SECOND_MS = 1000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export class TimeZone {
  // `offsetMin`: minutes east of UTC now, for a zone that the browser does not know.
  constructor(name, offsetMin) {
    this.name = name;
    this.offsetMs = offsetMin * 60_000;
    try {
      this.format = new Intl.DateTimeFormat("en-GB", { ...FIELDS, timeZone: name });
    } catch {
      this.format = null;
    }
  }

  // What its clock shows, as if it was UTC.
  shown(unixMs) {
    if (this.format === null) return new Date(unixMs + this.offsetMs);
    const part = Object.fromEntries(this.format.formatToParts(unixMs).map(({ type, value }) => [type, Number(value)]));
    return new Date(Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second));
  }

  clock(unixMs) {
    return this.shown(unixMs).toISOString().slice(11, 19);
  }

  // Thu 2026-11-26
  day(unixMs) {
    const shown = this.shown(unixMs);
    return `${DAYS[shown.getUTCDay()]} ${shown.toISOString().slice(0, 10)}`;
  }

  minute(unixMs) {
    return `${this.day(unixMs)} ${this.clock(unixMs).slice(0, 5)}`;
  }

  // Of a field for date and time.
  field(unixMs) {
    return this.shown(unixMs).toISOString().slice(0, 19);
  }

  // Of such a field. A time that the clock shows twice is the first one; one that it leaves out is as long after the change as it would be.
  unixMs(field) {
    const wanted = Date.parse(`${field}Z`);
    if (Number.isNaN(wanted)) return wanted;
    const offset = (unixMs) => this.shown(unixMs).getTime() - unixMs;
    const possible = [wanted - DAY_MS, wanted + DAY_MS].map((near) => wanted - offset(near)).sort((a, b) => a - b);
    return possible.find((unixMs) => this.shown(unixMs).getTime() === wanted) ?? possible[1];
  }

  // The fields of a time that has all of this one, and is never empty.
  range(fromMs, toMs) {
    const from = this.field(fromMs);
    const least = Math.max(Math.ceil(toMs / SECOND_MS) * SECOND_MS, this.unixMs(from) + SECOND_MS);
    let end = least;
    // In an hour that comes twice, a field means the first one.
    while (this.unixMs(this.field(end)) < least) end += HOUR_MS;
    return [from, this.field(end)];
  }
}
