use super::*;

const LOOKS: usize = 800;
const RUNS: Runs = Runs { looks: LOOKS };

fn run(setup: &BoxSetup) -> anyhow::Result<RunFigures> {
    RUNS.run(setup)
}

/// As many looks in flight as the daemon learns.
fn learned(device: &str) -> BoxSetup {
    let setup = setup(device, InFlight::Fixed(1));
    BoxSetup {
        in_flight: InFlight::Learned(setup.device.permits()),
        ..setup
    }
}

fn setup(device: &str, in_flight: InFlight) -> BoxSetup {
    let device = chosen(Some(device)).expect("a device of the file").pop();
    let mut setup = BoxSetup {
        model: SimulatedModel::load().expect("the embedded model"),
        device: device.expect("a device of the file"),
        cameras: 8,
        prompts: 1,
        has_query: false,
        objects: 2,
        looks_hz: 0.0,
        in_flight,
    };
    let empty = time_of_empty_look(&setup).expect("a sound device");
    setup.looks_hz = 3.0 / empty.as_secs_f64();
    setup
}

/// A small GPU that is asked for three times what it can answer.
#[test]
fn overloaded_box_answers_what_it_begins() {
    let figures = run(&learned("RTX 4070 720p"));
    let figures = figures.expect("a sound device");
    assert!(figures.answered * 100 >= figures.begun * 99, "{figures:?}");
    assert!(figures.looks_per_s > 3.9, "{figures:?}");
    assert!(figures.wasted_share < 0.01, "{figures:?}");
    assert!(figures.fairness > 0.9, "{figures:?}");
}

#[test]
fn virtual_time_gives_the_same_figures_each_time() {
    let figures = || run(&setup("H200 720p", InFlight::Fixed(3))).expect("a sound device");
    assert_eq!(format!("{:?}", figures()), format!("{:?}", figures()));
}

#[test]
fn unknown_device_is_reported_with_the_known_ones() {
    let error = chosen(Some("RTX 9999")).unwrap_err().to_string();
    assert!(
        error.contains("RTX 9999") && error.contains("Orin NX 360p"),
        "{error}"
    );
}

/// One camera with a detect prompt and a question that is answered with 128 tokens, at light load.
#[test]
fn free_text_delays_detect_by_at_most_two_decode_steps() {
    for device in ["H200 720p", "Orin NX 360p"] {
        let mut setup = learned(device);
        setup.cameras = 1;
        setup.looks_hz /= 15.0;
        let without = run(&setup).expect("a sound device");
        setup.has_query = true;
        let mut site = SimulatedBox::new(&setup).expect("a sound device");
        site.run(WARM_UP_LOOKS + LOOKS, RUNS.limit())
            .expect("a sound device");
        let with = RunFigures::of(&site.records()[WARM_UP_LOOKS..], 1, RUNS.limit());
        let query = QueryFigures::of(&setup, &with, &without);
        let more_ms = query.common_p95_ms - query.common_p95_ms_without;
        assert!(
            more_ms <= 2.0 * setup.device.decode_ms(1),
            "{device}: {query:?}"
        );
        assert!(with.answered * 100 >= with.begun * 99, "{device}");
        // A text is under way most of the time, and every one ends as an answer. On the Orin NX 128 tokens of 30 ms take as long as
        // 3.7 looks from frame to frame; a third of that time belongs to looks, and the next text begins with a look. The run may
        // end by its limit, before all looks.
        let (texts, looks) = (site.texts().len(), site.records().len());
        assert!(texts * 6 > looks, "{device}: {texts} texts, {looks} looks");
        for frames in site.frames() {
            assert!(frames.balanced(), "{device}: {frames:?}");
            assert!(frames.late * 100 <= frames.looked, "{device}: {frames:?}");
            assert_eq!(frames.failed, 0, "{device}: {frames:?}");
            assert!(frames.in_flight <= 2, "{device}: {frames:?}");
        }
    }
}

/// Every camera has a text under way, and looks with many steps wait for each other.
#[test]
fn texts_of_eight_cameras_delay_detect_by_few_steps() {
    let mut setup = learned("RTX 3060 360p");
    setup.objects = 6;
    setup.looks_hz *= 0.7 / 3.0;
    let without = run(&setup).expect("a sound device");
    setup.has_query = true;
    let with = run(&setup).expect("a sound device");
    let query = QueryFigures::of(&setup, &with, &without);
    assert!(query.more_steps <= 3.0, "{query:?}");
    assert!(query.texts_per_s > 0.5, "{query:?}");
}
