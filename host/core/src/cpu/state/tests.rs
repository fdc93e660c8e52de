//! Tests with a manual clock: each test says which run is polled for how long.

use proptest::prelude::*;

use super::*;

const ONE: Slots = Slots { usual: 1, extra: 0 };

/// A state whose runs are named by the letter of their plugin and a number.
struct Scene {
    state: State<String>,
    now: Instant,
    seats: BTreeMap<String, SeatId>,
    accounts: BTreeMap<char, AccountId>,
    /// The runs that have been woken, and not been polled since.
    woken: Vec<String>,
}

impl Scene {
    fn new(slots: Slots) -> Self {
        Self {
            state: State::new(slots),
            now: Instant::now(),
            seats: BTreeMap::new(),
            accounts: BTreeMap::new(),
            woken: Vec::new(),
        }
    }

    fn with_quota(mut self, plugin: char, quota: f64) -> Self {
        self.account(plugin);
        self.state.account(&plugin.to_string().into(), Some(quota));
        self
    }

    fn account(&mut self, plugin: char) -> AccountId {
        let state = &mut self.state;
        *self.accounts.entry(plugin).or_insert_with(|| state.account(&plugin.to_string().into(), None))
    }

    fn seat(&mut self, name: &str) -> SeatId {
        let account = self.account(name.chars().next().unwrap());
        let state = &mut self.state;
        let job = Job { controller: name.into(), key: None };
        *self.seats.entry(name.to_owned()).or_insert_with(|| state.sit(account, job))
    }

    /// Returns for each run whether it may be polled.
    fn enter(&mut self, names: &str) -> Vec<bool> {
        let enter = |name: &str| {
            let seat = self.seat(name);
            let entered = self.state.enter(seat, &name.to_owned(), self.now);
            self.woken.extend(entered.wake);
            entered.may
        };
        names.split_whitespace().map(enter).collect()
    }

    fn leave(&mut self, name: &str) {
        let seat = self.seat(name);
        self.woken.extend(self.state.leave(seat, self.now));
    }

    fn look(&mut self) -> Looked<String> {
        let looked = self.state.look(self.now);
        self.woken.extend(looked.wake.clone());
        looked
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    /// Polls the next woken run for 10 ms and lets it ask again at once, `times` times. Returns the runs that were
    /// polled.
    fn spin(&mut self, times: usize) -> String {
        let mut polled = Vec::new();
        for _ in 0..times {
            let name = self.woken.remove(0);
            assert_eq!(self.enter(&name), [true]);
            self.pass(10);
            self.leave(&name);
            self.enter(&name);
            polled.push(name);
        }
        polled.join(" ")
    }

    fn woken(&mut self) -> String {
        std::mem::take(&mut self.woken).join(" ")
    }
}

#[test]
fn within_a_plugin_the_first_come_are_the_first_served() {
    let mut scene = Scene::new(ONE);
    assert_eq!(scene.enter("a1 a2 a3"), [true, false, false]);
    scene.leave("a1");
    scene.enter("a1");
    assert_eq!(scene.spin(5), "a2 a3 a1 a2 a3");
}

#[test]
fn what_a_plugin_used_while_nobody_else_wanted_it_is_not_held_against_it() {
    let mut scene = Scene::new(Slots { usual: 3, extra: 0 });
    let mut polled: Vec<String> = ["c1", "a1", "a2"].map(str::to_owned).to_vec();
    assert_eq!(scene.enter("c1 a1 a2"), [true; 3]);
    // All that are polled compute for 10 ms, and ask again at once.
    let mut round = |scene: &mut Scene| {
        scene.pass(10);
        for name in std::mem::take(&mut polled) {
            scene.leave(&name);
            if scene.enter(&name) == [true] {
                polled.push(name);
            }
        }
        for name in std::mem::take(&mut scene.woken) {
            assert_eq!(scene.enter(&name), [true]);
            polled.push(name);
        }
    };
    // One plugin has twice what another wants.
    (0..3_000).for_each(|_| round(&mut scene));
    let of_a = |scene: &Scene| scene.state.spent(scene.now).iter().find(|spent| &*spent.plugin == "a").unwrap().time;
    let before = of_a(&scene);
    assert_eq!(scene.enter("d1 d2 d3"), [false; 3]);
    (0..400).for_each(|_| round(&mut scene));
    let more = of_a(&scene).checked_sub(before).unwrap();
    assert!(more >= Duration::from_secs(2), "{more:?} of 12 s, a third of which is its share");
}

#[test]
fn a_plugin_with_many_executions_takes_turns_with_one_that_has_one() {
    let mut scene = Scene::new(ONE);
    scene.enter("a1 a2 a3 a4");
    assert_eq!(scene.enter("b1"), [false]);
    scene.pass(10);
    scene.leave("a1");
    scene.enter("a1");
    assert_eq!(scene.spin(6), "b1 a2 b1 a3 b1 a4");
}

#[test]
fn one_that_comes_back_is_not_put_behind_those_who_never_rest_by_one_that_has_used_much() {
    let mut scene = Scene::new(Slots { usual: 2, extra: 0 });
    assert_eq!(scene.enter("a1 h1 a2 a3"), [true, true, false, false]);
    let seat = scene.seat("h1");
    scene.state.charge(seat, Duration::from_secs(10), scene.now);
    scene.leave("h1");
    scene.pass(1);
    // One of the two slots is that of `a`, which always waits for the other one as well.
    assert_eq!(scene.woken(), "a2");
    assert_eq!(scene.enter("a2 h1"), [true, false]);
    scene.state.accounts.get_mut(&scene.accounts[&'a']).unwrap().waiting.clear();
    scene.leave("a1");
    assert_eq!(scene.woken(), "h1");
    assert_eq!(scene.enter("h1 a1 v1"), [true, false, false]);
    scene.pass(10);
    scene.leave("a2");
    assert_eq!(scene.woken(), "v1", "it has used nothing");
}

#[test]
fn one_that_comes_back_is_next_but_has_saved_nothing_up() {
    let mut scene = Scene::new(ONE);
    scene.enter("b1");
    scene.pass(10);
    scene.leave("b1");
    scene.enter("a1 a2");
    scene.pass(60_000);
    scene.leave("a1");
    scene.enter("a1");
    assert_eq!(scene.spin(2), "a2 a1");
    scene.enter("b1");
    // The slot is a2's already; after that b gets its turn, but not a minute of turns.
    assert_eq!(scene.spin(5), "a2 b1 a1 b1 a2");
}

#[test]
fn a_short_run_waits_for_one_slice_at_each_of_its_polls_however_many_others_compute() {
    let mut scene = Scene::new(ONE);
    scene.enter("a1 b1 c1 d1 e1 f1 g1 h1");
    scene.pass(10);
    scene.leave("a1");
    scene.enter("a1");
    scene.spin(24);
    for poll in 0..5 {
        assert_eq!(scene.enter("v1"), [false]);
        scene.spin(1);
        assert_eq!(scene.woken, ["v1"], "poll {poll}");
        assert_eq!(scene.enter("v1"), [true]);
        scene.woken.clear();
        scene.pass(2);
        scene.leave("v1");
    }
}

#[test]
fn a_long_poll_has_somebody_elses_slot_made_up_for() {
    let mut scene = Scene::new(Slots { usual: 1, extra: 1 });
    assert_eq!(scene.enter("a1 a2 b1 c1"), [true, false, false, false]);
    scene.pass(19);
    scene.look();
    assert_eq!(scene.woken(), "");
    scene.pass(1);
    scene.look();
    // Not a2: a plugin gets no more slots by holding them for long.
    assert_eq!(scene.woken(), "b1");
    scene.enter("b1");
    scene.pass(1000);
    scene.look();
    assert_eq!(scene.woken(), "", "extra slots are bounded");
    scene.leave("b1");
    assert_eq!(scene.woken(), "c1");
    scene.enter("c1");
    scene.leave("a1");
    assert_eq!(scene.woken(), "", "one slot is left, and c1 has it");
    scene.leave("c1");
    assert_eq!(scene.woken(), "a2");
}

#[test]
fn what_comes_while_a_slot_is_held_for_long_does_not_wait() {
    let mut scene = Scene::new(Slots { usual: 1, extra: 1 });
    scene.enter("a1");
    scene.pass(5000);
    assert_eq!(scene.enter("a2 b1"), [false, true]);
}

#[test]
fn a_poll_that_is_long_is_told_once_while_it_lasts() {
    let mut scene = Scene::new(ONE);
    scene.enter("a1");
    scene.pass(999);
    assert_eq!(scene.look().late, []);
    scene.pass(1);
    let job = Job { controller: "a1".into(), key: None };
    let late = Held { plugin: "a".into(), job, held: Duration::from_secs(1) };
    assert_eq!(scene.look().late, std::slice::from_ref(&late));
    scene.pass(1000);
    assert_eq!(scene.look().late, []);
    let spent = Spent { plugin: "a".into(), time: Duration::ZERO, held: Duration::from_secs(2), waiting: 0 };
    assert_eq!(scene.state.spent(scene.now), [spent]);
    scene.leave("a1");
    scene.enter("a1");
    scene.pass(1000);
    assert_eq!(scene.look().late, [late]);
}

#[test]
fn somebody_looks_while_there_is_something_to_see() {
    let mut scene = Scene::new(ONE);
    let looks = |scene: &mut Scene, name: &str| {
        let seat = scene.seat(name);
        scene.state.enter(seat, &String::new(), scene.now).look
    };
    assert!(looks(&mut scene, "a1"), "it is polled");
    assert!(looks(&mut scene, "b1"), "somebody waits");
    assert!(!looks(&mut scene, "c1"), "that is planned already");
    let next = |scene: &mut Scene| scene.look().next.map(|at| at - scene.now);
    assert_eq!(next(&mut scene), Some(GLANCE));
    for name in ["b1", "c1"] {
        let seat = scene.seat(name);
        scene.state.stand_up(seat, scene.now);
    }
    assert_eq!(next(&mut scene), Some(PATROL));
    scene.leave("a1");
    assert_eq!(next(&mut scene), None, "an idle daemon does not wake up");
    assert!(looks(&mut scene, "a1"));
}

#[test]
fn one_that_is_given_up_leaves_its_slot_or_its_place() {
    let mut scene = Scene::new(ONE);
    scene.enter("a1 a2 a3");
    let seat = scene.seat("a2");
    assert_eq!(scene.state.stand_up(seat, scene.now), Vec::<String>::new());
    scene.leave("a1");
    assert_eq!(scene.woken(), "a3");
    let seat = scene.seat("a3");
    scene.state.stand_up(seat, scene.now);
    assert_eq!(scene.enter("b1"), [true], "the slot of one that was woken and not polled is free");
}

#[test]
fn beyond_its_quota_a_plugin_waits_though_slots_are_free() {
    let mut scene = Scene::new(ONE).with_quota('a', 0.5);
    assert_eq!(scene.enter("a1"), [true]);
    // One second is saved up, half of which pays for a second of a slot.
    scene.pass(1000);
    scene.leave("a1");
    assert_eq!(scene.enter("a1"), [false]);
    scene.pass(999);
    scene.look();
    assert_eq!(scene.woken(), "");
    scene.pass(1);
    scene.look();
    assert_eq!(scene.woken(), "a1");
    assert_eq!(scene.enter("b1"), [false]);
}

#[test]
fn an_account_goes_with_its_last_user() {
    let mut state = State::<()>::new(ONE);
    let [one, other] = [0, 1].map(|_| state.account(&"a".into(), None));
    assert_eq!(one, other);
    let seat = state.sit(one, Job { controller: "c".into(), key: None });
    state.release(one);
    state.release(other);
    assert_eq!(state.spent(Instant::now()).len(), 1);
    state.stand_up(seat, Instant::now());
    assert!(state.spent(Instant::now()).is_empty() && state.accounts.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens, no slot is given out twice, and no run waits while a slot is free.
    #[test]
    fn slots_are_neither_doubled_nor_left_unused(script in prop::collection::vec((0..4_u8, 0..12_u8, 0..30_u64), 1..200)) {
        let slots = Slots { usual: 2, extra: 2 };
        let mut scene = Scene::new(slots);
        for (what, who, millis) in script {
            let name = format!("{}{}", ['a', 'b', 'c'][usize::from(who % 3)], who);
            let seat = scene.seat(&name);
            match what {
                0 | 1 => drop(scene.enter(&name)),
                2 => scene.leave(&name),
                _ => {
                    scene.state.stand_up(seat, scene.now);
                    scene.seats.remove(&name);
                }
            }
            scene.pass(millis);
            scene.look();
            let State { taken, accounts, .. } = &scene.state;
            let holding: usize = accounts.values().map(|account| account.holding.len()).sum();
            let waiting = accounts.values().any(|account| !account.waiting.is_empty());
            prop_assert_eq!(holding, *taken);
            prop_assert!(*taken <= slots.usual + slots.extra);
            prop_assert!(!(waiting && *taken < slots.usual));
        }
    }

    /// However many runs each has and however long they compute, plugins that always want to compute get the same.
    #[test]
    fn hungry_plugins_get_the_same(crowds in prop::collection::vec(2..20_usize, 2..6), slices in prop::collection::vec(1..=10_u64, 400)) {
        let mut scene = Scene::new(ONE);
        for (plugin, crowd) in ('a'..).zip(&crowds) {
            for number in 0..*crowd {
                scene.enter(&format!("{plugin}{number}"));
            }
        }
        let mut polled = "a0".to_owned();
        for millis in slices {
            scene.pass(millis);
            scene.leave(&polled);
            scene.enter(&polled);
            polled = scene.woken();
            prop_assert_eq!(scene.enter(&polled), [true]);
        }
        let spent: Vec<_> = scene.state.spent(scene.now).into_iter().map(|spent| spent.time).collect();
        let (least, most) = (spent.iter().min().unwrap(), spent.iter().max().unwrap());
        prop_assert!(most.saturating_sub(*least) <= Duration::from_millis(20), "{:?}", spent);
    }
}
