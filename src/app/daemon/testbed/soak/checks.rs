//! The assertions at the end of a soak, and what it prints.

use super::{
    process_use::growth_mib,
    scenario::{Scenario, SoakUse},
    *,
};

impl Scenario {
    pub(super) fn end(&self, report: &RunReport, usage: &SoakUse) {
        let consumer = self.consumer.lock().unwrap();
        let SoakUse {
            before,
            during,
            needed,
            after,
            recovered_after,
            settings,
        } = usage;
        let fault_log = self.soak.fault_log.all();
        let seed = self.soak.seed;
        println!("seed {seed}: {fault_log:#?}\nall is well again after {recovered_after:?}");
        println!("before: {before}; after: {after}\n{report}");
        assert!(report.balanced(), "{report}");
        assert!(!settings.daemon.is_empty());
        assert_eq!(settings.daemon, settings.broker);
        let faults = consumer.faults();
        assert!(faults.is_empty(), "{faults:#?}");
        assert!(consumer.open().is_empty(), "{:?}", consumer.open());
        let messages = &report.messages;
        assert_eq!(messages.events_over_bound, 0, "{messages:?}");
        // A restart inside the process begins the daemon's counters again. A lost message would leave an event without its begin
        // or its end, which is asserted above.
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
        assert!(after.is_near(*needed), "{needed}; {after}");
        // In a short soak, pools and caches are filled for the first time.
        let grown = growth_mib(&during[during.len() / 2..]);
        assert!(
            !self.soak.long || grown < MORE_MIB,
            "{grown:.1} MiB more in the second half"
        );
    }
}
