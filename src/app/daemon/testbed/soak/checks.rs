//! What is to be true when it is over, and the table for people.

use std::fmt::Write as _;

use super::{
    holds::growth_mib,
    story::{Quiet, Story},
    *,
};

impl Story {
    pub(super) fn end(&self, report: &RunReport, quiet: &Quiet) {
        let judge = self.judge.lock().unwrap();
        println!("{}", self.table(report, quiet, &judge));
        assert!(report.balanced(), "{report}");
        let [(_, daemon), (_, broker)] = &quiet.last;
        assert!(!daemon.is_empty());
        assert_eq!(daemon, broker, "settings");
        let faults = judge.faults();
        assert!(faults.is_empty(), "{faults:#?}");
        assert!(judge.open().is_empty(), "{:?}", judge.open());
        let messages = &report.messages;
        assert_eq!(messages.spool_dropped(), 0, "{messages:?}");
        // A restart inside the process begins the daemon's counters again. A lost event would leave a stay without its begin or
        // its end, which is asserted above.
        let diary = self.soak.diary.all();
        let has_restarted = diary.keys().any(|what| what.contains("another model"));
        assert!(judge.events() >= messages.events_acked, "{messages:?}");
        assert!(
            has_restarted || judge.events() == messages.events_acked,
            "{messages:?}"
        );
        assert_eq!(self.field.retained("status").as_deref(), Some("offline"));
        for (camera, server) in CAMERAS.iter().zip(self.servers.lock().unwrap().iter()) {
            let memory = server.as_ref().unwrap().memory();
            assert_eq!(memory.open, 0, "{camera}: connections are open");
        }
        let Quiet { before, after, .. } = quiet;
        assert!(
            after.threads <= before.threads + MORE_THREADS,
            "{before}; {after}"
        );
        assert!(
            after.files <= before.files + MORE_FILES,
            "{before}; {after}"
        );
        // What a minute fills is filled for the first time.
        let grown = growth_mib(&quiet.during[quiet.during.len() / 2..]);
        assert!(
            !self.soak.long || grown < MORE_MIB,
            "{grown:.1} MiB more in the second half"
        );
    }

    fn table(&self, report: &RunReport, quiet: &Quiet, judge: &Judge) -> String {
        let mut text = format!("\nseed {}\n", self.soak.seed);
        let mut row = |name: &str, value: String| _ = writeln!(text, "  {name:<48} {value}");
        for (what, count) in self.soak.diary.all() {
            row(&what, count.to_string());
        }
        for (kind, count) in &judge.kinds {
            row(&format!("messages: {kind}"), count.to_string());
        }
        row(
            "events",
            format!(
                "{} stays, {} messages, {} came again under their id",
                judge.stays(),
                judge.events(),
                judge.again
            ),
        );
        row(
            "connections to the broker",
            self.field.broker.connections().to_string(),
        );
        row(
            "all is well again after the last fault",
            format!("{:.1} s", quiet.back_after.as_secs_f64()),
        );
        let half = &quiet.during[quiet.during.len() / 2..];
        row("held before", quiet.before.to_string());
        row(
            "held at half time",
            half.first().map(ToString::to_string).unwrap_or_default(),
        );
        row("held after", quiet.after.to_string());
        row(
            "memory, line through the second half",
            format!("{:+.1} MiB", growth_mib(half)),
        );
        row("tally", format!("{:?}", report.messages));
        text + &report.to_string()
    }
}
