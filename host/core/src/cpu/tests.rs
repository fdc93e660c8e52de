use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::*;

const ONE: Slots = Slots { usual: 1, extra: 1 };

fn job() -> Job {
    Job { controller: "web".into(), key: Some(ObjectRef::namespaced("default", "page")) }
}

fn quiet(slots: Slots) -> Cpu {
    Cpu::new(slots, || {})
}

/// Computes for a moment, counts that, and begins again, until it is dropped.
async fn spin(polls: Arc<AtomicUsize>) {
    loop {
        compute();
        polls.fetch_add(1, Ordering::Relaxed);
        rest().await;
    }
}

fn compute() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(500) {}
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_waits_for_an_answer_holds_no_slot() {
    let account = quiet(ONE).account(&"a".into(), None);
    let asleep = account.run(job(), sleep(Duration::from_hours(1)));
    let answer = account.run(job(), async { 7 });
    tokio::select! {
        biased;
        () = asleep => panic!("it sleeps for an hour"),
        seven = answer => assert_eq!(seven, 7),
    }
}

// Several threads: while one computes, the others poll the runs that have to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn one_execution_beside_hundreds_that_spin_gets_every_other_turn() {
    let cpu = quiet(Slots { usual: 1, extra: 0 });
    let [crowd, single] = ["crowd", "single"].map(|name| cpu.account(&name.into(), None));
    let polls = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..400 {
        let (crowd, polls) = (crowd.clone(), Arc::clone(&polls));
        tasks.spawn(async move { crowd.run(job(), spin(polls)).await });
    }
    while polls.load(Ordering::Relaxed) < 1000 {
        yield_now().await;
    }
    let before = polls.load(Ordering::Relaxed);
    let work = async {
        for _ in 0..100 {
            compute();
            rest().await;
        }
    };
    // In a task like the others: the test itself is polled more rarely.
    tokio::spawn(async move { single.run(job(), work).await }).await.unwrap();
    let between = polls.load(Ordering::Relaxed) - before;
    assert!(between < 2000, "{between} turns of the crowd for 100 of one");
}

#[tokio::test]
async fn a_slot_comes_back_from_what_panics_and_from_what_is_given_up() {
    let cpu = quiet(Slots { usual: 1, extra: 0 });
    let account = cpu.account(&"a".into(), None);
    let panics = account.clone();
    let ended = tokio::spawn(async move { panics.run(job(), async { panic!("at once") }).await }).await;
    assert!(ended.is_err_and(|error| error.is_panic()));
    let given_up = account.clone();
    let task = tokio::spawn(async move { given_up.run(job(), spin(Arc::default())).await });
    yield_now().await;
    task.abort();
    let after = timeout(Duration::from_secs(10), account.run(job(), async {}));
    assert_eq!(after.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn the_first_poll_and_the_first_that_waits_have_somebody_look() {
    let calls = Arc::new(AtomicUsize::new(0));
    let cpu = Cpu::new(ONE, {
        let calls = Arc::clone(&calls);
        move || {
            calls.fetch_add(1, Ordering::Relaxed);
        }
    });
    let account = cpu.account(&"a".into(), None);
    account.run(job(), async {}).await;
    account.run(job(), async {}).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let (late, next) = cpu.look(Instant::now());
    assert_eq!((late, next), (vec![], None));
    account.run(job(), async {}).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn time_that_was_used_elsewhere_counts_and_is_paid_for_by_the_quota() {
    let cpu = quiet(ONE);
    let account = cpu.account(&"a".into(), Some(0.5));
    let used = || cpu.spent()[0].time;
    // Time charged outside of a run is ignored.
    charge(Duration::from_hours(1));
    let begun = Instant::now();
    account
        .run(job(), async {
            charge(Duration::from_secs(2));
            charge(Duration::from_secs(1));
            yield_now().await;
        })
        .now_or_never();
    assert_eq!(used(), Duration::from_secs(3));
    // One second was saved up, so the rest takes twice as long. The test calls `look` now and then, as the daemon
    // does.
    let next = account.run(job(), async {});
    tokio::pin!(next);
    while timeout(Duration::from_millis(100), &mut next).await.is_err() {
        cpu.look(Instant::now());
    }
    let waited = begun.elapsed().as_secs();
    assert_eq!(waited, 5, "{:?}", begun.elapsed());
}
