//! Decides whether the daemon is ready, and what is said of what is not.

use std::time::Duration;

use capstan_core::health::Trouble;

/// How long the start may take. What is on its way then does not hold up whoever waits for the daemon.
const START: Duration = Duration::from_mins(1);

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unready {
    /// The thing, such as an informer or a plugin.
    pub what: String,
    /// The reason, in one sentence.
    pub why: String,
    /// Whether the daemon is ready all the same.
    pub matter: Matter,
}

/// Whose matter something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matter {
    /// The daemon can't do its work.
    Daemon,
    /// It is on its way: the daemon is not ready as long as it starts.
    Start,
    /// One operator's, or another cluster's: the daemon is ready all the same.
    Operator,
}

/// Who asks, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Whether all is to be told, also what is the matter of operators.
    pub verbose: bool,
    /// Whether it is a client on this host: others are not told texts, as anyone may ask, and they come from manifests,
    /// components and the API server.
    pub here: bool,
}

impl Unready {
    /// Returns a trouble with the API server. What concerns one operator is the daemon's as well if that is `alone`: nobody is kept from
    /// anything by it who could do more.
    pub fn of_server(Trouble { account, why }: Trouble, alone: bool) -> Self {
        match account.filter(|_| !alone) {
            Some(account) => Self { what: account.to_string(), why, matter: Matter::Operator },
            None => Self { what: "the API server".to_owned(), why, matter: Matter::Daemon },
        }
    }

    fn line(&self) -> String {
        let Self { what, why, .. } = self;
        format!("{what}: {why}\n")
    }

    /// Returns true if the daemon is not ready because of this.
    fn counts(&self, starting: bool) -> bool {
        match self.matter {
            Matter::Daemon => true,
            Matter::Start => starting,
            Matter::Operator => false,
        }
    }
}

/// Returns true as long as the daemon starts, given how long it has run and whether it was ready before.
pub fn starting(age: Duration, was_ready: bool) -> bool {
    !was_ready && age < START
}

/// Returns the answer to a probe: that the daemon is ready or, as an error, that it is not; with one line for each
/// thing that is told.
///
/// # Errors
/// That it is not ready.
pub fn answer(unready: &[Unready], starting: bool, asked: Asked) -> Result<String, String> {
    let (counting, others): (Vec<_>, Vec<_>) = unready.iter().partition(|unready| unready.counts(starting));
    let others = others.into_iter().filter(|_| asked.verbose && asked.here).map(Unready::line).collect::<String>();
    match counting.len() {
        0 => Ok(format!("ok\n{others}")),
        _ if asked.here => Err(counting.into_iter().map(Unready::line).collect::<String>() + &others),
        1 => Err("not ready: 1 reason\n".to_owned()),
        n => Err(format!("not ready: {n} reasons\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unready(what: &str, matter: Matter) -> Unready {
        Unready { what: what.to_owned(), why: "password=hunter2 is refused".to_owned(), matter }
    }

    const HERE: Asked = Asked { verbose: false, here: true };
    const ALL: Asked = Asked { verbose: true, here: true };
    const ELSEWHERE: Asked = Asked { verbose: true, here: false };

    #[test]
    fn what_one_operator_lacks_and_what_is_on_its_way_later_keep_the_daemon_from_nothing() {
        use Matter::{Daemon, Operator, Start};
        for (matter, at_start, later) in [(Daemon, false, false), (Start, false, true), (Operator, true, true)] {
            for (starting, expected) in [(true, at_start), (false, later)] {
                let told = answer(&[unready("it", matter)], starting, HERE);
                assert_eq!(told.is_ok(), expected, "{matter:?} {starting}");
            }
        }
        assert_eq!(answer(&[], true, HERE), Ok("ok\n".to_owned()));
    }

    #[test]
    fn what_keeps_one_operator_from_writing_keeps_the_daemon_from_nothing_unless_there_is_no_other() {
        let trouble = |account: Option<&str>| Trouble { account: account.map(Into::into), why: "HTTP 500".to_owned() };
        for (account, alone, what, matter) in [
            (None, false, "the API server", Matter::Daemon),
            (Some("operator web"), false, "operator web", Matter::Operator),
            (Some("operator web"), true, "the API server", Matter::Daemon),
        ] {
            let told = Unready { what: what.to_owned(), why: "HTTP 500".to_owned(), matter };
            assert_eq!(Unready::of_server(trouble(account), alone), told);
        }
    }

    #[test]
    fn the_start_is_over_once_the_daemon_was_ready_and_after_a_minute_at_the_latest() {
        let seconds = Duration::from_secs;
        for (age, was_ready, expected) in
            [(seconds(0), false, true), (seconds(59), false, true), (START, false, false), (seconds(1), true, false)]
        {
            assert_eq!(starting(age, was_ready), expected, "{age:?} {was_ready}");
        }
    }

    #[test]
    fn why_something_is_not_ready_is_told_on_this_host_only() {
        let [server, plugin] = [unready("the API server", Matter::Daemon), unready("plugin p", Matter::Operator)];
        let line = |what: &str| format!("{what}: password=hunter2 is refused\n");
        let both = [server.clone(), plugin.clone()];
        for (seen, asked, expected) in [
            (&[][..], ELSEWHERE, Ok("ok\n".to_owned())),
            (std::slice::from_ref(&plugin), ELSEWHERE, Ok("ok\n".to_owned())),
            (std::slice::from_ref(&plugin), HERE, Ok("ok\n".to_owned())),
            (std::slice::from_ref(&plugin), ALL, Ok("ok\n".to_owned() + &line("plugin p"))),
            (&both, ELSEWHERE, Err("not ready: 1 reason\n".to_owned())),
            (&[server.clone(), server.clone()], ELSEWHERE, Err("not ready: 2 reasons\n".to_owned())),
            (&both, HERE, Err(line("the API server"))),
            (&both, ALL, Err(line("the API server") + &line("plugin p"))),
        ] {
            assert_eq!(answer(seen, false, asked), expected, "{seen:?} {asked:?}");
        }
    }
}
