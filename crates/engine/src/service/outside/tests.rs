//! Both sides of a connection in one process, around a small engine.

use std::{
    future::Future as _,
    pin::pin,
    sync::atomic::AtomicBool,
    task::{Context, Waker},
};

use tokio::{task::JoinHandle, time::timeout};

use super::*;
use crate::{
    scheduler::backend::Step,
    service::{Engine, handle, inside},
    testing::simulated::{self, BeforeLaunch, FragileDevice},
};
use spotter_config::AdapterConfig;
use spotter_core::{
    AdapterId, AnswerBody, AnswerPiece, FoundObject, Look, ManualClock, Mono, NormBox, Picture,
    Task, WholeLook,
};

/// Generous, because it says nothing about speed.
const PATIENCE: Duration = Duration::from_secs(60);
const PERMITS: usize = 2;
const START: Mono = Mono::from_nanos(5_000_000_000);
const WHENEVER: Mono = Mono::from_nanos(u64::MAX);

/// What a test has of a device: the gate, open when it is dropped, and a word of each step that comes to it.
type Gate = (mpsc::Sender<()>, mpsc::Receiver<()>);

/// An engine whose device waits before each step until the gate is open, and fails after a number of steps.
fn engine(steps: usize, clock: Arc<dyn Clock>) -> (Engine, Gate) {
    let (open, gate) = mpsc::channel();
    let (launched, launches) = mpsc::channel();
    let wait = move |_: &Step| {
        // The receiver may be gone, and without another end the gate is open for ever.
        let _ = launched.send(());
        let _ = gate.recv();
    };
    let device = FragileDevice::new(simulated::device(3), steps);
    let device = BeforeLaunch::new(device, wait);
    let engine = simulated::engine(device, clock);
    (engine, (open, launches))
}

/// The two sides of an engine.
struct Site {
    engine: EngineHandle,
    end: EngineEnd,
    gate: Gate,
    /// The connection from the engine's side.
    its_socket: UnixStream,
    its_side: Arc<AtomicBool>,
}

/// The engine's side as in a process of its own, on a thread: it builds what is ordered, an engine whose device runs so many
/// steps, and reports the number.
fn serve(socket: UnixStream, gate_out: mpsc::Sender<Gate>) -> Result<(), inside::InsideError> {
    let daemon = inside::DaemonConnection::at(socket);
    let (steps, clock) = daemon.order().unwrap().expect("the daemon is there");
    let build = move || {
        if steps == 0 {
            return Err("no such device".to_owned());
        }
        let (engine, gate) = engine(steps, clock);
        gate_out.send(gate).expect("the test waits for it");
        Ok((engine, LookRule::fixed(PERMITS), steps))
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(daemon.serve(build))
}

impl Site {
    async fn open(steps: usize) -> Result<Self, EngineStopped> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let its_socket = theirs.try_clone().unwrap();
        let its_side = Arc::new(AtomicBool::new(false));
        let [over, is_over] = [(); 2].map(|()| Arc::clone(&its_side));
        let (gate_out, gate) = mpsc::channel();
        let side = move || {
            let served = serve(theirs, gate_out);
            over.store(true, Ordering::Relaxed);
            served.unwrap();
        };
        spawn("engine-process", side).unwrap();
        let ended = move || {
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            "it is gone".to_owned()
        };
        let clock = ManualClock::default();
        clock.advance(START.since(Mono::default()));
        let connected = connect(ours, ended, steps, Arc::new(clock));
        let (engine, end, report): (_, _, usize) = within(connected).await?;
        assert_eq!(report, steps);
        Ok(Self {
            engine,
            end,
            gate: gate.recv().unwrap(),
            its_socket,
            its_side,
        })
    }
}

#[tokio::test]
async fn adapters_reach_the_engine_and_its_reply_the_caller() {
    let site = Site::open(usize::MAX).await.unwrap();
    let plates = AdapterConfig {
        id: AdapterId::new("plates").unwrap(),
        path: "plates.safetensors".into(),
    };
    let broken = within(site.engine.set_adapters(vec![plates.clone()])).await;
    let [broken] = &broken.unwrap()[..] else {
        panic!("one adapter");
    };
    assert_eq!(broken.id, plates.id);
    assert!(broken.reason.contains("room for 0 adapters"), "{broken:?}");
    assert_eq!(
        within(site.engine.set_adapters(Vec::new())).await,
        Some(Vec::new())
    );
    // Its process is gone.
    site.its_socket.shutdown(Shutdown::Both).unwrap();
    assert_eq!(within(site.engine.set_adapters(vec![plates])).await, None);
}

/// The engine's side of the opening, without an engine.
fn open_by_hand(mut socket: &UnixStream) {
    wire::write(&mut socket, &Hello::Hello).unwrap();
    let _: WireOrder<()> = wire::read(&mut socket).unwrap();
    let (permits, report) = (wire::LookCount::of(PERMITS), ());
    wire::write(&mut socket, &OpenReply::Ready { permits, report }).unwrap();
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it takes too long")
}

async fn ask(engine: &EngineHandle, prompts: usize, start_by: Mono) -> WholeLook {
    let permit = within(engine.permit()).await;
    within(permit.whole_look(look(prompts, start_by))).await
}

/// A look that is under way when this returns, or will be in a moment.
async fn begin(engine: &EngineHandle) -> JoinHandle<WholeLook> {
    let permit = within(engine.permit()).await;
    let begun = tokio::spawn(permit.whole_look(look(1, WHENEVER)));
    // It runs up to where it waits for the answer.
    tokio::task::yield_now().await;
    begun
}

fn look(prompts: usize, start_by: Mono) -> Look {
    let picture = Picture::from_rgb(7, 5, (0..105).collect()).unwrap();
    let task = |i| Task::Detect {
        object: "x".repeat(i % 7 + 1),
    };
    Look {
        moved: None,
        strips: Vec::new(),
        start_by,
        ..Look::still(picture, (0..prompts).map(task))
    }
}

fn is_answered(look: &WholeLook) -> bool {
    matches!(look.outcome, Some(Outcome::Answered(_)))
}

#[track_caller]
fn assert_failed(look: &WholeLook) {
    assert!(
        matches!(look.outcome, Some(Outcome::Failed(..))),
        "{look:?}"
    );
}

#[tokio::test]
async fn answers_are_those_of_the_same_engine_on_a_thread() {
    let Site { engine, gate, .. } = Site::open(usize::MAX).await.unwrap();
    drop(gate);
    let clock = Arc::new(ManualClock::default());
    let build = move || Ok((self::engine(usize::MAX, clock).0, 1));
    let (thread, _end) = handle::start(build).await.unwrap();
    for prompts in 1..9 {
        let there = ask(&engine, prompts, WHENEVER).await;
        let here = ask(&thread, prompts, WHENEVER).await;
        let [there, here] = [there, here].map(|look| {
            let model_size = look.model_size;
            (model_size, look.into_answers().expect("answered"))
        });
        assert_eq!(there.0, here.0);
        assert_eq!(there.1.len(), prompts);
        for (there, here) in there.1.iter().zip(&here.1) {
            assert_eq!(there.prompt, here.prompt);
            assert_eq!((&there.body, there.truncated), (&here.body, here.truncated));
            assert!(there.body.count() > Some(0));
            assert!(there.marks.taken >= START, "the daemon's time");
        }
    }
}

// Faults: E11.
#[tokio::test]
async fn prompt_beside_one_with_a_broken_adapter_is_answered() {
    let Site { engine, gate, .. } = Site::open(usize::MAX).await.unwrap();
    drop(gate);
    let mut asked = look(2, WHENEVER);
    Arc::make_mut(&mut asked.prompts[0]).adapter = AdapterId::new("plates").ok();
    let expected = [asked.prompts[0].id.clone(), asked.prompts[1].id.clone()];
    let whole = within(within(engine.permit()).await.whole_look(asked)).await;
    let Some(Outcome::Failed(unanswered, LookFailure::Adapter { .. })) = whole.outcome else {
        panic!("{:?}", whole.outcome)
    };
    let found = [
        &unanswered.prompts[..],
        &[Arc::clone(&whole.answers[0].prompt)],
    ]
    .concat();
    let found: Vec<_> = found.iter().map(|prompt| prompt.id.clone()).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn pieces_of_a_text_are_those_of_its_answer() {
    let Site { engine, gate, .. } = Site::open(usize::MAX).await.unwrap();
    drop(gate);
    let question = |text: &str| Task::question(text);
    let mut pieces_in_all = 0;
    for text in ["What is it?", "Where?", "How many?"] {
        let picture = Picture::from_rgb(7, 5, (0..105).collect()).unwrap();
        let asked = Look::still(picture, [question(text)]).in_pieces();
        let mut whole = WholeLook::new(&asked);
        let mut submitted = within(engine.permit()).await.look(asked);
        let mut pieces = Vec::new();
        while whole.outcome.is_none() {
            for news in within(submitted.next()).await {
                match news {
                    LookNews::Piece {
                        piece: AnswerPiece::Text(text),
                        ..
                    } => pieces.push(text),
                    news => whole.add(news),
                }
            }
        }
        let answers = whole.into_answers().expect("answered");
        let AnswerBody::Text { text, .. } = &answers[0].body else {
            panic!("{answers:?}");
        };
        assert_eq!(pieces.concat(), *text);
        pieces_in_all += pieces.len();
    }
    assert!(pieces_in_all > 3, "{pieces_in_all}");
}

#[tokio::test]
async fn follow_up_prompts_are_answered_in_another_process() {
    let Site { engine, gate, .. } = Site::open(usize::MAX).await.unwrap();
    drop(gate);
    let question = |text: &str| {
        let id = spotter_core::PromptId::new(text).unwrap();
        Arc::new(Prompt::new(id, Prompt::ONCE, Task::question(text)))
    };
    for questions in [&["what", "where"][..], &[]] {
        let mut asked = look(2, WHENEVER);
        Arc::make_mut(&mut asked.prompts[1]).outlines_max = 2;
        let mut submitted = within(engine.permit()).await.look(asked);
        let (mut answered, mut offered, mut outcome) = (Vec::new(), 0, None);
        while outcome.is_none() {
            for news in within(submitted.next()).await {
                match news {
                    LookNews::Answer {
                        answer, follow_up, ..
                    } => {
                        answered.push(answer.prompt.id.to_string());
                        if let Some(follow_up) = follow_up {
                            offered += 1;
                            follow_up.ask(questions.iter().copied().map(question).collect());
                        }
                    }
                    LookNews::Ended(end) => outcome = Some(end),
                    LookNews::Piece { .. } | LookNews::ShortAnswered(_) => {}
                }
            }
        }
        assert!(matches!(outcome, Some(Outcome::Answered(_))), "{outcome:?}");
        answered[2..].sort();
        assert_eq!(
            (offered, &answered[2..]),
            (
                1,
                &questions
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()[..]
            )
        );
    }
}

/// A prompt that is not in pieces has room for none.
#[test]
fn piece_that_is_not_wanted_is_an_error() {
    let (news, _receiver) = news::channel(9);
    let messages = Arc::new(mpsc::channel().0);
    let waiting = |in_pieces| WaitingLook {
        id: LookId(1),
        follow_ups: FollowUpSender::new(&messages),
        open: OpenLook::new(match in_pieces {
            true => look(1, WHENEVER).in_pieces(),
            false => look(1, WHENEVER),
        }),
        news: news.clone(),
        place: None,
    };
    let found = |x1, score| FoundObject {
        place: NormBox::from_corners(0.0, 0.0, x1, 1.0),
        score,
        source: Default::default(),
        sharpness: 1.0,
    };
    let piece = |prompt, piece| WireLookNews::Piece { prompt, piece };
    let fits = || piece(0, AnswerPiece::Box(found(0.5, 0.9)));
    assert!(waiting(true).hear(fits()).is_ok());
    for (in_pieces, wrong) in [
        (false, fits()),
        (true, piece(1, AnswerPiece::Box(found(0.5, 0.9)))),
        (true, piece(0, AnswerPiece::Box(found(0.5, 9.0)))),
        (true, piece(0, AnswerPiece::Text("a".into()))),
    ] {
        let refused = waiting(in_pieces).hear(wrong);
        assert!(matches!(refused, Err(WireError::Malformed(_))));
    }
}

/// The engine waited for them too long, and ended the look when they were on their way.
#[test]
fn look_is_answered_without_its_late_follow_up_prompts() {
    let (news, mut received) = news::channel(9);
    let messages = Arc::new(mpsc::channel().0);
    let mut open = OpenLook::new(look(1, WHENEVER));
    open.answer(0).unwrap();
    open.follow_up(look(2, WHENEVER).prompts);
    let waiting = WaitingLook {
        id: LookId(1),
        follow_ups: FollowUpSender::new(&messages),
        open,
        news,
        place: None,
    };
    assert!(waiting.hear(WireLookNews::Answered).unwrap().is_none());
    let end = received.try_recv().unwrap();
    assert!(matches!(end, LookNews::Ended(Outcome::Answered(_))));
}

#[tokio::test]
async fn a_late_look_is_late() {
    let Site { engine, gate, .. } = Site::open(usize::MAX).await.unwrap();
    drop(gate);
    let look = ask(&engine, 1, START.before(Duration::from_nanos(1))).await;
    assert!(matches!(look.outcome, Some(Outcome::Late(_))), "{look:?}");
}

#[tokio::test]
async fn client_admits_as_many_looks_as_the_engine_reports() {
    let Site { engine, gate, .. } = Site::open(usize::MAX).await.unwrap();
    let begun = [begin(&engine).await, begin(&engine).await];
    let mut third = pin!(engine.permit());
    let mut context = Context::from_waker(Waker::noop());
    assert!(third.as_mut().poll(&mut context).is_pending());
    drop(gate);
    for look in begun {
        assert!(is_answered(&within(look).await.unwrap()));
    }
    assert!(third.poll(&mut context).is_ready());
}

/// The engine's side takes no more looks than permits, so it has to know of one that is cancelled before it gets the next.
#[tokio::test]
async fn abandoned_look_is_cancelled_before_its_permit_is_reused() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (heard_out, heard) = mpsc::channel();
    let side = move || {
        let mut socket = &theirs;
        open_by_hand(socket);
        while let Ok((request, _)) = wire::read_request(&mut socket) {
            let said = match request {
                wire::WireRequest::Look(asked) => format!("look {}", asked.id),
                wire::WireRequest::Cancel { id } => format!("cancel {id}"),
                wire::WireRequest::FollowUp { id, .. } => format!("follow-up of {id}"),
                wire::WireRequest::Adapters { .. } => continue,
            };
            // The test may have ended.
            let _ = heard_out.send(said);
        }
    };
    spawn("engine-process", side).unwrap();
    let clock = Arc::new(ManualClock::default());
    let connected = connect(ours, || "it is gone".to_owned(), (), clock);
    let (engine, _end, ()) = within(connected).await.unwrap();
    let next = || heard.recv_timeout(PATIENCE).unwrap();
    let first = begin(&engine).await;
    assert_eq!(next(), "look 1");
    let second = begin(&engine).await;
    assert_eq!(next(), "look 2");
    first.abort();
    let _third = begin(&engine).await;
    assert_eq!([next(), next()], ["cancel 1", "look 3"]);
    // It is noticed too when no other comes.
    second.abort();
    tokio::task::yield_now().await;
    assert_eq!(next(), "cancel 2");
}

#[tokio::test]
async fn engine_failure_reason_reaches_all_waiting_looks() {
    let mut site = Site::open(3).await.unwrap();
    let begun = [begin(&site.engine).await, begin(&site.engine).await];
    drop(site.gate);
    for look in begun {
        assert_failed(&within(look).await.unwrap());
    }
    let reason = within(site.end.reason()).await.to_string();
    assert_eq!(reason, "device: it fell off the bus");
    assert_failed(&ask(&site.engine, 1, WHENEVER).await);
    within(site.end.over()).await;
    assert!(site.its_side.load(Ordering::Relaxed));
}

#[tokio::test]
async fn engine_that_cannot_open_reports_the_reason() {
    let Err(stopped) = Site::open(0).await else {
        panic!("there is no such device")
    };
    assert_eq!(stopped.to_string(), "no such device");
}

#[tokio::test]
async fn lost_engine_process_is_reported_with_its_exit() {
    let mut site = Site::open(usize::MAX).await.unwrap();
    let begun = begin(&site.engine).await;
    site.its_socket.shutdown(Shutdown::Both).unwrap();
    drop(site.gate);
    assert_eq!(within(site.end.reason()).await.to_string(), "it is gone");
    assert_failed(&within(begun).await.unwrap());
    within(site.end.over()).await;
}

/// As a process that was stopped, or that the machine has no time for.
#[tokio::test]
async fn an_engine_s_side_that_reads_no_more_is_left() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let its = theirs.try_clone().unwrap();
    spawn("engine-process", move || open_by_hand(&its)).unwrap();
    let limit = ours.try_clone().unwrap();
    let clock = Arc::new(ManualClock::default());
    let connected = connect(ours, || "it had to be ended".to_owned(), (), clock);
    let (engine, mut end, ()) = within(connected).await.unwrap();
    limit
        .set_write_timeout(Some(Duration::from_millis(10)))
        .unwrap();
    // More than the connection takes by itself.
    let picture = Picture::from_rgb(2000, 1000, vec![0; 6_000_000]).unwrap();
    let mut large = look(1, WHENEVER);
    large.frame.picture = picture;
    assert_failed(&within(within(engine.permit()).await.whole_look(large)).await);
    assert_eq!(within(end.reason()).await.to_string(), "it had to be ended");
    within(end.over()).await;
    drop(theirs);
}

#[tokio::test]
async fn engine_process_ends_when_its_client_disconnects() {
    let mut site = Site::open(usize::MAX).await.unwrap();
    drop(site.gate);
    assert!(is_answered(&ask(&site.engine, 1, WHENEVER).await));
    drop(site.engine);
    let reason = within(site.end.reason()).await.to_string();
    assert_eq!(reason, "no caller is left");
    within(site.end.over()).await;
    assert!(site.its_side.load(Ordering::Relaxed));
}

#[tokio::test]
async fn an_engine_s_side_that_talks_nonsense_is_left() {
    let mut site = Site::open(usize::MAX).await.unwrap();
    drop(site.gate);
    wire::write(&mut &site.its_socket, &"what?").unwrap();
    let reason = within(site.end.reason()).await.to_string();
    let expected = "reading from its process: a message is invalid: ";
    assert!(reason.starts_with(expected), "{reason}");
    within(site.end.over()).await;
}

#[tokio::test]
async fn the_engine_s_beats_are_passed_on() {
    let Site { engine, .. } = Site::open(usize::MAX).await.unwrap();
    let rises = async {
        for _ in 0..2 {
            let before = engine.beats();
            while engine.beats() <= before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    within(rises).await;
}

/// The daemon's end of a connection whose other side waits for looks.
struct Bare {
    socket: UnixStream,
    gate: Gate,
    served: mpsc::Receiver<Result<(), inside::InsideError>>,
}

impl Bare {
    fn open() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (gate_out, gate) = mpsc::channel();
        let (sender, served) = mpsc::channel();
        // The test may have ended.
        let side = move || drop(sender.send(serve(theirs, gate_out)));
        spawn("engine-process", side).unwrap();
        let mut socket = &ours;
        let Hello::Hello = wire::read(&mut socket).unwrap();
        let (now, what) = (START, usize::MAX);
        wire::write(&mut socket, &WireOrder { now, what }).unwrap();
        let opened: OpenReply<usize> = wire::read(&mut socket).unwrap();
        let (permits, report) = (wire::LookCount::of(PERMITS), what);
        assert_eq!(opened, OpenReply::Ready { permits, report });
        Self {
            socket: ours,
            gate: gate.recv().unwrap(),
            served,
        }
    }

    fn ask(&self, id: u64) {
        wire::write_look(&mut &self.socket, id, &look(1, WHENEVER)).unwrap();
    }

    fn next(&self) -> WireNews {
        wire::read(&mut &self.socket).unwrap()
    }

    /// Why the engine stops, while no look can be answered.
    fn stop_reason(&self) -> String {
        loop {
            match self.next() {
                WireNews::Stopped { reason } => return reason,
                WireNews::Beat { .. } | WireNews::Places { .. } | WireNews::Adapters { .. } => {}
                WireNews::Look { .. } => panic!("the gate is shut"),
            }
        }
    }
}

/// A daemon that asks for more than was agreed on is one that cannot be trusted with the rest.
#[test]
fn too_many_looks_end_the_connection_with_an_error() {
    let bare = Bare::open();
    for id in 0..=PERMITS as u64 {
        bare.ask(id);
    }
    let reason = bare.stop_reason();
    drop(bare.gate);
    let expected = "more looks than the 2 that may be inside";
    assert!(reason.ends_with(expected), "{reason}");
    let served = bare.served.recv_timeout(PATIENCE).expect("it ends");
    assert!(
        matches!(served, Err(inside::InsideError::Daemon(_))),
        "{served:?}"
    );
}

// Faults: E15.
#[test]
fn follow_up_that_was_not_offered_ends_the_connection() {
    let bare = Bare::open();
    bare.ask(0);
    let follow_up = |id| wire::WireRequest::FollowUp {
        id,
        prompt: 0,
        prompts: Vec::new(),
    };
    // To a look that is over, as far as the engine knows.
    wire::write(&mut &bare.socket, &follow_up(7)).unwrap();
    wire::write(&mut &bare.socket, &follow_up(0)).unwrap();
    let reason = bare.stop_reason();
    drop(bare.gate);
    let expected = "a follow-up to prompt 0 that was not offered";
    assert!(reason.ends_with(expected), "{reason}");
}

#[test]
fn a_look_that_is_cancelled_makes_room_for_another() {
    let bare = Bare::open();
    bare.ask(0);
    wire::write(&mut &bare.socket, &wire::WireRequest::Cancel { id: 0 }).unwrap();
    bare.ask(1);
    bare.ask(2);
    // They are taken before the second beat, or hardly later; the number of places is news too.
    for _ in 0..3 {
        let news = bare.next();
        let is_ended = matches!(news, WireNews::Look { .. } | WireNews::Stopped { .. });
        assert!(!is_ended, "{news:?}");
    }
    drop(bare.gate.0);
    let mut ended = Vec::new();
    while ended.len() < 2 {
        match wire::read::<WireNews>(&mut &bare.socket).unwrap() {
            WireNews::Look { id, news } => {
                if news.is_end() {
                    assert_eq!(news, WireLookNews::Answered);
                    ended.push(id);
                }
            }
            WireNews::Beat { .. } | WireNews::Places { .. } | WireNews::Adapters { .. } => {}
            WireNews::Stopped { reason } => panic!("{reason}"),
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [1, 2]);
}
