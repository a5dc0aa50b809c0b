//! The measured looks as they are shown: a table for people, JSON for programs.

use std::fmt;

use serde::Serialize;

use super::{stages::Spread, work::LookWork};
use spotter::ops::machine::Machine;

/// What is printed; `Display` gives the table, serde the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LooksReport {
    /// Where it ran.
    pub machine: Machine,
    /// Which model answered.
    pub model: String,
    /// Pixels across and down.
    pub picture: (u32, u32),
    /// The drawn scene.
    pub scene_seed: u64,
    /// Cars that the picture shows.
    pub cars: usize,
    /// Boxes that the first prompt, "car", returned.
    pub cars_found: usize,
    /// What the machine reaches in large products, GFLOP/s.
    pub ceiling_gflop_per_s: Option<f64>,
    /// What the second prompt adds to a look with one, percent of the median; `None` without these rows.
    pub second_prompt_percent: Option<f64>,
    /// By number of prompts, one first.
    pub rows: Vec<LooksRow>,
}

/// Looks with one number of prompts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LooksRow {
    /// Detect prompts in the look.
    pub prompts: usize,
    /// Boxes in all answers.
    pub boxes: usize,
    /// From the call to its return.
    pub total: Spread,
    /// Scaling and cutting of the picture.
    pub prepare: Spread,
    /// Vision encoder, projection and the prefix in the cache.
    pub encode: Spread,
    /// Prefill of the prompts, with their first decisions.
    pub prompt: Spread,
    /// The rest.
    pub generate: Spread,
    /// Arithmetic that the look needs.
    pub work: LookWork,
    /// The time that this takes at the ceiling, milliseconds; `None` when that was not measured.
    pub floor_ms: Option<f64>,
}

/// What the second prompt adds to a look with one, percent of the median.
pub(super) fn second_prompt_percent(rows: &[LooksRow]) -> Option<f64> {
    let median = |prompts| {
        let row = rows.iter().find(|row| row.prompts == prompts)?;
        Some(row.total.median_ms).filter(|&ms| ms > 0.0)
    };
    Some((median(2)? / median(1)? - 1.0) * 100.0)
}

/// The time that `work` takes at `gflop_per_s`, milliseconds.
pub(super) fn floor_ms(work: &LookWork, gflop_per_s: Option<f64>) -> Option<f64> {
    let speed = gflop_per_s.filter(|&speed| speed > 0.0)?;
    Some(work.total() / speed * 1e3)
}

impl fmt::Display for LooksReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_setting(f)?;
        writeln!(
            f,
            "\n{:>7}{:>6}{:>16}{:>16}{:>16}{:>16}{:>16}{:>8}{:>10}",
            "prompts",
            "boxes",
            "total",
            "prepare",
            "vision+prefix",
            "prompt",
            "generate",
            "GFLOP",
            "floor ms"
        )?;
        for row in &self.rows {
            write!(f, "{:>7}{:>6}", row.prompts, row.boxes)?;
            for spread in [row.total, row.prepare, row.encode, row.prompt, row.generate] {
                write!(f, "{:>16}", spread.to_string())?;
            }
            let floor = row
                .floor_ms
                .map_or_else(|| "-".into(), |ms| format!("{ms:.1}"));
            writeln!(f, "{:>8.2}{floor:>10}", row.work.total())?;
        }
        if let Some(percent) = self.second_prompt_percent {
            writeln!(f, "\na second prompt adds {percent:.1} %")?;
        }
        if let Some(mib) = self.machine.peak_rss_mib {
            writeln!(f, "peak memory {mib:.0} MiB")?;
        }
        Ok(())
    }
}

impl LooksReport {
    fn write_setting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}; {}", self.machine, self.model)?;
        if let Some(speed) = self.ceiling_gflop_per_s {
            writeln!(
                f,
                "large products here: {speed:.0} GFLOP/s (the floor's speed)"
            )?;
        }
        let ((width, height), seed) = (self.picture, self.scene_seed);
        let (cars, found) = (self.cars, self.cars_found);
        writeln!(
            f,
            "picture {width}x{height} of scene {seed} with {cars} cars; \"car\" returned {found} boxes"
        )?;
        writeln!(f, "times: median / p95, milliseconds")
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} / {:.1}", self.median_ms, self.p95_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(prompts: usize, total_ms: f64) -> LooksRow {
        let spread = |median_ms: f64| Spread {
            median_ms,
            p95_ms: median_ms * 2.0,
        };
        let work = LookWork {
            vision: 4.0,
            prefix: 1.5,
            prompts: 0.3,
            generate: 0.2,
        };
        LooksRow {
            prompts,
            boxes: 3,
            total: spread(total_ms),
            prepare: spread(2.0),
            encode: spread(20.0),
            prompt: spread(5.0),
            generate: spread(total_ms - 27.0),
            work,
            floor_ms: floor_ms(&work, Some(200.0)),
        }
    }

    fn report() -> LooksReport {
        let rows = vec![row(1, 40.0), row(2, 44.0)];
        LooksReport {
            machine: Machine {
                cpu: Some("Some CPU".into()),
                cores: Some(2),
                spotter: "0.1.0",
                peak_rss_mib: Some(123.4),
                ..Machine::default()
            },
            model: "embedded@9f3c".into(),
            picture: (640, 360),
            scene_seed: 7,
            cars: 3,
            cars_found: 3,
            ceiling_gflop_per_s: Some(200.0),
            second_prompt_percent: second_prompt_percent(&rows),
            rows,
        }
    }

    #[test]
    fn the_second_prompt_and_the_floor() {
        let rows = [row(1, 40.0), row(2, 44.0)];
        assert!((second_prompt_percent(&rows).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(second_prompt_percent(&rows[..1]), None);
        // 6 GFLOP at 200 GFLOP/s.
        assert_eq!(rows[0].floor_ms, Some(30.0));
        assert_eq!(floor_ms(&rows[0].work, None), None);
    }

    #[test]
    fn the_table_lines_up() {
        let text = report().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "spotter 0.1.0, Some CPU, 2 cores; embedded@9f3c");
        let columns = |line: &str| line.len();
        assert_eq!(columns(lines[5]), columns(lines[6]));
        assert!(lines[6].starts_with("      1     3     40.0 / 80.0       2.0 / 4.0"));
        assert!(lines[6].ends_with("    6.00      30.0"));
        assert_eq!(lines[9], "a second prompt adds 10.0 %");
    }

    #[test]
    fn json_has_the_derived_figures() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["rows"][0]["floor_ms"], 30.0);
        assert_eq!(json["rows"][1]["total"]["median_ms"], 44.0);
        assert_eq!(json["machine"]["peak_rss_mib"], 123.4);
    }
}
