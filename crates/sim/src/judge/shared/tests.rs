use std::time::Duration;

use chiton_types::PlateId;

use super::*;
use crate::history::{CallId, ClientId, Happened, ServerId};
use crate::plan::SHARED;
use crate::users::User;

/// A history in short: `A+x` client A creates x with an acknowledgement, `A-x` removes it, `A?x` sees it, `A!x`
/// does not; `A+x…` gets no answer. `As` commits, `A†` dies. `†` and `*`: the server dies, and starts; `|` and `_`:
/// another takes over from it, and it is gone; `‡` and `⁑`: that other dies, and starts.
fn history(story: &str) -> History {
    let mut history = History::default();
    let mut next = 0;
    for word in story.split_whitespace() {
        next += 1;
        let mut push = |what| history.push(Duration::from_millis(next), what);
        let server = ServerId(0);
        let mut letters = word.chars();
        let client = match letters.next() {
            Some('†') => {
                push(Happened::ServerCrashed { server });
                continue;
            }
            Some('|') => {
                push(Happened::ServerPaused { server });
                push(Happened::ServerStarted {
                    server: ServerId(1),
                    plate: PlateId(0),
                    epoch: next,
                    found: 0,
                });
                continue;
            }
            Some('_') => {
                push(Happened::ServerCrashed { server });
                continue;
            }
            Some('‡') => {
                push(Happened::ServerCrashed { server: ServerId(1) });
                continue;
            }
            Some('⁑') => {
                push(Happened::ServerStarted {
                    server: ServerId(1),
                    plate: PlateId(0),
                    epoch: next,
                    found: 0,
                });
                continue;
            }
            Some('*') => {
                push(Happened::ServerStarted { server, plate: PlateId(0), epoch: next, found: 0 });
                continue;
            }
            letter => ClientId(letter.map_or(0, |letter| letter as u32 - 'A' as u32)),
        };
        let (deed, name) = word[1..].split_at(word[1..].chars().next().map_or(0, char::len_utf8));
        let path = format!("{SHARED}/{}", name.trim_end_matches('…'));
        let (action, answer) = match deed {
            "†" => {
                push(Happened::ClientCrashed { client });
                continue;
            }
            "s" => (Action::Sync, Answer::Done),
            "+" => (Action::Create { path, content: Vec::new() }, Answer::Done),
            "-" => (Action::Unlink { path }, Answer::Done),
            "?" => (Action::Stat { path }, Answer::Done),
            "!" => (Action::Stat { path }, Answer::Refused(Refusal::NotFound)),
            deed => panic!("{deed:?}"),
        };
        let call = CallId(next);
        push(Happened::Invoked { client, call, user: User::Root, action });
        if !name.ends_with('…') {
            push(Happened::Returned { client, call, answer });
        }
    }
    history
}

fn check(story: &str, is_right: bool) {
    let found = judge(&history(story));
    assert_eq!(found.is_empty(), is_right, "{story}: {found:?}");
}

#[test]
fn answers_to_live_clients_hold_over_restarts() {
    check("* A+x B?x † * B?x", true);
    check("* A+x B?x † * B!x", false);
    check("* A+x B+y A† B!x", false);
    check("* A+x B+y A† B?x B-x B!x", true);
    // A call in flight when its client died may take effect, at any time.
    check("* A+x… A† B!x B?x", true);
    check("* A+x… A† B!x B!x", true);
    check("* A+x… A† B?x B!x", false);
}

#[test]
fn a_dead_clients_answers_may_be_lost_unless_durable() {
    check("* A+x B?x A† † * B!x", true);
    check("* A+x B?x † A† * B!x", true);
    check("* A+x… B?x A† † * B!x", true);
    check("* A+x B?x Bs A† † * B!x", false);
    check("* A+x B?x As A† † * B!x", false);
    check("* A+x B?x † * As A† B!x", false);
    // It was back, and had sent it again.
    check("* A+x B?x A† † * B+y B!x", true);
}

#[test]
fn a_dead_clients_pending_removal_may_be_lost() {
    check("* B+y A-y A† B?y", true);
    check("* B+y A-y A† B!y", true);
    check("* B+y A-y B?y B!y A† B?y", false);
    check("* B+y A-y As A† B?y", false);
    check("* B+y A-y B?y", false);
}

#[test]
fn calls_after_a_loss_are_judged_again() {
    check("* A+x A† † * B+y C?y C!x", true);
    check("* A+x A† † * B+y C?y C?x", true);
    check("* A+x A† † * B+y C!x C?x", false);
    check("* A+x A† † * B+y C?y C!y", false);
    check("* A+x A† † * † * B+y C?y C!y", false);
    // A replaced server may answer anything until it is gone.
    check("* A+x | B!x _ B+y B?y", true);
    check("* A+x | B!x _ B+y B?y B!y", false);
    check("* A+x B!x | _ B+y", false);
    check("* A+x | ‡ ⁑ B+z A-x B!x _ A† B?x B+y B?y", true);
    check("* A+x | ‡ ⁑ B+z A-x B!x _ A† B?x B+y B?y B!y", false);
    // Nothing is judged before a client is known to be back.
    check("* A+x A† † * C!x C?x", true);
    check("* A+x B!x A† † * B+y", false);
}
