//! A lease with its fencing tokens (`foundation.leases`): two observers, one cluster, expiry at any time.

use stateright::{Checker, HasDiscoveries, Model, Property};

const HOLDERS: usize = 2;
const MOST_TOKENS: u8 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    FenceChecksToken,
    FenceKeepsLease,
    TokenIsDrawnUnderLock,
    RenewChecksToken,
}

pub const GUARDS: &[(Guard, &str, &str, &str)] = &[
    (
        Guard::FenceChecksToken,
        "fence_checks_token",
        "writes without a check of the lease",
        "foundation.leases.Tenure.fence",
    ),
    (
        Guard::FenceKeepsLease,
        "fence_keeps_lease",
        "checks the lease without locking it until the commit",
        "foundation.leases.Tenure.fence",
    ),
    (
        Guard::TokenIsDrawnUnderLock,
        "token_is_drawn_under_lock",
        "takes the lease with a token drawn before it waited for the row",
        "foundation.leases.acquire",
    ),
    (Guard::RenewChecksToken, "renew_checks_token", "renews whatever tenure there is", "foundation.leases.renew_all"),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Holder {
    #[default]
    Idle,
    /// It has drawn this token and waits for the lease's row.
    Drew(u8),
    Follows(u8),
    /// In a transaction that has checked the lease: its writes become visible with the commit.
    Writing(u8),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    token: u8,
    is_expired: bool,
    drawn: u8,
    holders: [Holder; HOLDERS],
    broken: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Draw(usize),
    Acquire(usize),
    Renew(usize),
    Check(usize),
    Write(usize),
    Crash(usize),
    Expire,
}

pub struct Lease(pub Option<Guard>);

impl Lease {
    fn keeps(&self, guard: Guard) -> bool {
        self.0 != Some(guard)
    }

    /// A writing transaction holds the row FOR SHARE: nobody takes or renews the lease before its commit.
    fn is_locked(&self, s: &State) -> bool {
        self.keeps(Guard::FenceKeepsLease) && s.holders.iter().any(|holder| matches!(holder, Holder::Writing(_)))
    }

    fn acquire(&self, s: &State, who: usize) -> Option<State> {
        let Holder::Drew(drawn) = s.holders[who] else { return None };
        if !s.is_expired && s.token != 0 || self.is_locked(s) {
            return None;
        }
        let mut next = s.clone();
        let token = if self.keeps(Guard::TokenIsDrawnUnderLock) {
            next.drawn += 1;
            next.drawn
        } else {
            drawn
        };
        next.broken[0] |= token <= s.token;
        next.token = token;
        next.is_expired = false;
        next.holders[who] = Holder::Follows(token);
        Some(next)
    }

    fn renew(&self, s: &State, who: usize) -> Option<State> {
        let Holder::Follows(token) = s.holders[who] else { return None };
        if self.is_locked(s) {
            return None;
        }
        let mut next = s.clone();
        if token == s.token || !self.keeps(Guard::RenewChecksToken) {
            next.is_expired = false;
            next.holders[who] = Holder::Follows(s.token);
        } else {
            next.holders[who] = Holder::Idle;
        }
        (next != *s).then_some(next)
    }
}

impl Model for Lease {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State { is_expired: true, ..State::default() }]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Step>) {
        for who in 0..HOLDERS {
            actions.extend(
                [Step::Draw, Step::Acquire, Step::Renew, Step::Check, Step::Write, Step::Crash].map(|of| of(who)),
            );
        }
        actions.push(Step::Expire);
    }

    fn next_state(&self, s: &State, step: Step) -> Option<State> {
        let mut next = s.clone();
        match step {
            Step::Draw(who) if s.holders[who] == Holder::Idle && s.drawn + 2 <= MOST_TOKENS => {
                next.drawn += 1;
                next.holders[who] = Holder::Drew(next.drawn);
            }
            Step::Acquire(who) => return self.acquire(s, who),
            Step::Renew(who) => return self.renew(s, who),
            Step::Check(who) => {
                let Holder::Follows(token) = s.holders[who] else { return None };
                let is_held = token == s.token && !s.is_expired || !self.keeps(Guard::FenceChecksToken);
                next.holders[who] = if is_held { Holder::Writing(token) } else { Holder::Idle };
            }
            Step::Write(who) => {
                let Holder::Writing(token) = s.holders[who] else { return None };
                next.broken[1] |= token != s.token;
                next.holders[who] = Holder::Follows(token);
            }
            Step::Crash(who) if s.holders[who] != Holder::Idle => next.holders[who] = Holder::Idle,
            Step::Expire if !s.is_expired => next.is_expired = true,
            _ => return None,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("tokens grow", |_, s: &State| !s.broken[0]),
            Property::always("only the holder writes", |_, s: &State| !s.broken[1]),
            Property::always("a lease has one holder", |lease: &Lease, s: &State| lease.has_one_holder(s)),
        ]
    }

    fn within_boundary(&self, s: &State) -> bool {
        s.drawn <= MOST_TOKENS
    }
}

impl Lease {
    fn has_one_holder(&self, s: &State) -> bool {
        let current = s
            .holders
            .iter()
            .filter(|holder| **holder == Holder::Follows(s.token) || **holder == Holder::Writing(s.token));
        s.token == 0 || current.count() <= 1
    }
}

/// The number of states, and the promise that is broken, if one is.
pub fn explore(dropped: Option<Guard>) -> (usize, Option<&'static str>) {
    let checked = Lease(dropped).checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let broken = checked.discoveries().into_keys().next();
    (checked.unique_state_count(), broken)
}
