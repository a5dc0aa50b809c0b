//! The assertions at the end of a soak, and the table that it prints.

use std::fmt::Write as _;

use super::{
    process_use::growth_mib,
    scenario::{Scenario, SoakUse},
    *,
};

impl Scenario {
    pub(super) fn end(&self, report: &RunReport, usage: &SoakUse) {
        let consumer = self.consumer.lock().unwrap();
        println!("{}", self.table(report, usage, &consumer));
        assert!(report.balanced(), "{report}");
        let settings = &usage.settings;
        assert!(!settings.daemon.is_empty());
        assert_eq!(settings.daemon, settings.broker);
        let faults = consumer.faults();
        assert!(faults.is_empty(), "{faults:#?}");
        assert!(consumer.open().is_empty(), "{:?}", consumer.open());
        let messages = &report.messages;
        assert_eq!(messages.events_over_bound, 0, "{messages:?}");
        // A restart inside the process begins the daemon's counters again. A lost message would leave an event without its begin
        // or its end, which is asserted above.
        let fault_log = self.soak.fault_log.all();
        let has_restarted = fault_log.keys().any(|what| what.contains("another model"));
        assert!(
            consumer.message_count() >= messages.events_acked,
            "{messages:?}"
        );
        assert!(
            has_restarted || consumer.message_count() == messages.events_acked,
            "{messages:?}"
        );
        assert_eq!(self.testbed.retained("status").as_deref(), Some("offline"));
        for (camera, server) in CAMERAS.iter().zip(self.servers.lock().unwrap().iter()) {
            let memory = server.as_ref().unwrap().memory();
            assert_eq!(memory.open, 0, "{camera}: connections are open");
        }
        let SoakUse { needed, after, .. } = usage;
        assert!(after.is_near(*needed), "{needed}; {after}");
        // In a short soak, pools and caches are filled for the first time.
        let grown = growth_mib(&usage.during[usage.during.len() / 2..]);
        assert!(
            !self.soak.long || grown < MORE_MIB,
            "{grown:.1} MiB more in the second half"
        );
    }

    fn table(&self, report: &RunReport, usage: &SoakUse, consumer: &Consumer) -> String {
        let mut text = format!("\nseed {}\n", self.soak.seed);
        let mut row = |name: &str, value: String| _ = writeln!(text, "  {name:<48} {value}");
        for (what, count) in self.soak.fault_log.all() {
            row(&what, count.to_string());
        }
        for (kind, count) in &consumer.kinds {
            row(&format!("messages: {kind}"), count.to_string());
        }
        row(
            "events",
            format!(
                "{} events, {} messages, {} repeated with the same id",
                consumer.event_count(),
                consumer.message_count(),
                consumer.repeated
            ),
        );
        row(
            "connections to the broker",
            self.testbed.broker.connections().to_string(),
        );
        row(
            "all is well again after the last fault",
            format!("{:.1} s", usage.recovered_after.as_secs_f64()),
        );
        let half = &usage.during[usage.during.len() / 2..];
        row("process before the faults", usage.before.to_string());
        row(
            "process at half time",
            half.first().map(ToString::to_string).unwrap_or_default(),
        );
        row("process after the faults", usage.after.to_string());
        row(
            "memory, slope over the second half",
            format!("{:+.1} MiB", growth_mib(half)),
        );
        row("tally", format!("{:?}", report.messages));
        text + &report.to_string()
    }
}
