//! One visit of a worker: `federation.operations.dispatch`, `visits` and `calls`, step by step.
//!
//! Each function is a step between two points where the worker may die or be overtaken. `None`: the step is not
//! possible now. A request that is lost has not been processed yet: the network may still deliver it (`world`).

use super::ends::end;
use crate::guards::Guard;
use crate::model::Protocol;
use crate::state::*;

/// `locks.claim_due_attempts` and `claimed_attempts`. A worker may claim again what another has claimed: claims expire.
pub fn claim(s: &State, w: usize, a: usize) -> Option<State> {
    let (row, name) = (s.db.rows[a], s.names[a]);
    let is_open = !s.db.standstill && name.home != 0 && s.db.silent & State::bit(name.home) == 0;
    if s.workers[w] != Worker::Idle || !row.due || !row.state.is_live() || !is_open {
        return None;
    }
    let mut next = s.clone();
    let claimed = &mut next.db.rows[a];
    claimed.token = w as u8 + 1;
    claimed.sent |= row.stop == Stop::None;
    let a = a as u8;
    next.workers[w] = if row.stop != Stop::None {
        Worker::Stop { a, why: row.stop, uid: row.uid, is_early: row.state.is_early(), was_sent: row.sent }
    } else if row.released || row.state.is_unknown() {
        claimed.due = row.state.is_unknown();
        Worker::Idle
    } else {
        let creates = row.state == AttemptState::Reserved;
        Worker::Start { a, creates, may_have_run: !row.state.is_early(), uid: row.uid }
    };
    Some(next)
}

/// How a request to a cluster goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Answered,
    /// Lost, or late: the worker sees a time-out, and the request may still arrive.
    Lost,
    /// Refused by a webhook or a quota.
    Refused,
}

/// `calls._create_or_adopt`
pub fn create(model: &Protocol, s: &State, w: usize, call: Call) -> Option<State> {
    let Worker::Start { a, creates, may_have_run, uid } = s.workers[w] else { return None };
    let at = a as usize;
    if !creates {
        if call != Call::Answered {
            return None;
        }
        let mut next = s.clone();
        next.workers[w] = goes_on(model, a, uid, may_have_run);
        return Some(next);
    }
    let mut next = begin_call(s, at, call)?;
    next.names[at].create = true;
    let found = next.answering(at);
    let outcome = match call {
        Call::Lost => Outcome::Failed,
        Call::Refused => Outcome::Ended(AttemptState::Abandoned),
        Call::Answered if found.phase == Phase::Absent => {
            if let Some(uid) = make(model, &mut next, at, false) {
                next.workers[w] = made(model, s, a, uid);
                return Some(next);
            }
            Outcome::Failed
        }
        Call::Answered => {
            let is_ours = !found.foreign && found.phase != Phase::Deleting;
            if is_ours || !model.keeps(Guard::AdoptChecksLabels) {
                next.workers[w] = made(model, s, a, found.uid);
                return Some(next);
            }
            Outcome::Ended(AttemptState::Abandoned)
        }
    };
    next.workers[w] = Worker::Record { a, outcome };
    Some(next)
}

fn made(model: &Protocol, s: &State, a: u8, uid: u8) -> Worker {
    if model.keeps(Guard::CreateNeedsIdentity) {
        return if s.is_impostor(a as usize) {
            Worker::Record { a, outcome: Outcome::Failed }
        } else {
            goes_on(model, a, uid, false)
        };
    }
    goes_on(model, a, uid, false)
}

fn goes_on(model: &Protocol, a: u8, uid: u8, may_have_run: bool) -> Worker {
    if model.keeps(Guard::WriteAhead) {
        Worker::Commit { a, uid, may_have_run }
    } else {
        Worker::Release { a, uid, may_have_run }
    }
}

/// A new object of the name, suspended: its uid. None beyond the bound.
pub fn make(model: &Protocol, next: &mut State, a: usize, foreign: bool) -> Option<u8> {
    let name = &mut next.names[a];
    if name.uids >= model.bounds.uids {
        return None;
    }
    name.uids += 1;
    let uid = name.uids;
    if next.is_impostor(a) {
        next.names[a].unlisted |= 1 << uid;
    }
    *next.answering_mut(a) = Object { phase: Phase::Suspended, uid, foreign };
    if !foreign && !model.keeps(Guard::CreateSuspended) {
        super::world::unsuspend(next, a);
    }
    Some(uid)
}

/// `transitions.mark_created` and `transitions.commit_to_start`, in one transaction.
pub fn commit(model: &Protocol, s: &State, w: usize) -> Option<State> {
    let Worker::Commit { a, uid, may_have_run } = s.workers[w] else { return None };
    let mut next = s.clone();
    let is_ready = write_commit(model, &mut next, w, a as usize, uid);
    if next.db != s.db && s.db.rows[a as usize].token != w as u8 + 1 {
        next.breaks(Break::StaleWorkerWrote);
    }
    next.workers[w] =
        if is_ready { Worker::Release { a, uid: next.db.rows[a as usize].uid, may_have_run } } else { Worker::Idle };
    Some(next)
}

/// `transitions.mark_created` alone: the attempt could run into a maintenance window, so `transitions.commit_to_start` does not
/// commit to it. It is visited again, and may be recalled: so it happens only where recalls do.
pub fn hold_back(s: &State, w: usize) -> Option<State> {
    let Worker::Commit { a, uid, .. } = s.workers[w] else { return None };
    let row = s.db.rows[a as usize];
    if s.faults.recalls == 0 || row.token != w as u8 + 1 || !row.state.is_early() {
        return None;
    }
    let mut next = s.clone();
    let row = &mut next.db.rows[a as usize];
    if row.state == AttemptState::Reserved {
        row.state = AttemptState::Created;
        row.uid = uid;
    }
    next.workers[w] = Worker::Idle;
    Some(next)
}

/// Whether the attempt may be released now.
fn write_commit(model: &Protocol, next: &mut State, w: usize, a: usize, uid: u8) -> bool {
    let standstill = next.db.standstill;
    let row = &mut next.db.rows[a];
    if row.token != w as u8 + 1 && model.keeps(Guard::CommitChecksToken) {
        return false;
    }
    if row.state == AttemptState::Reserved {
        row.state = AttemptState::Created;
        row.uid = uid;
    }
    if row.stop != Stop::None && model.keeps(Guard::CommitChecksStop) {
        return false;
    }
    if row.state != AttemptState::Created || standstill {
        return row.state == AttemptState::Starting && !row.released;
    }
    row.state = AttemptState::Starting;
    row.committed = true;
    if row.stop != Stop::None {
        next.breaks(Break::StartedAfterStop);
    }
    true
}

/// `calls.release`
pub fn release(model: &Protocol, s: &State, w: usize, call: Call) -> Option<State> {
    let Worker::Release { a, uid, may_have_run } = s.workers[w] else { return None };
    let at = a as usize;
    let mut next = begin_call(s, at, call)?;
    next.names[at].releases |= 1 << uid;
    let found = next.answering(at);
    let fits = found.phase != Phase::Absent && (found.uid == uid || !model.keeps(Guard::PatchCarriesUid));
    let outcome = match call {
        Call::Lost => Outcome::Failed,
        Call::Answered if fits => {
            if found.foreign {
                next.breaks(Break::TouchedForeign);
            }
            super::world::unsuspend(&mut next, at);
            Outcome::Released
        }
        _ => {
            if call == Call::Refused {
                next.names[at].releases = s.names[at].releases;
            }
            after_refusal(model, &next, at, uid, may_have_run)
        }
    };
    next.workers[w] = Worker::Record { a, outcome };
    Some(next)
}

/// `evidence.standing_of` after a refused release.
fn after_refusal(model: &Protocol, next: &State, a: usize, uid: u8, may_have_run: bool) -> Outcome {
    let found = next.answering(a);
    if found.phase != Phase::Absent && found.uid == uid {
        return if found.phase == Phase::Suspended { Outcome::Withdrawn } else { Outcome::Released };
    }
    if next.is_impostor(a) && model.keeps(Guard::AbsenceNeedsIdentity) {
        return Outcome::Failed;
    }
    Outcome::Ended(if may_have_run { AttemptState::Failed } else { AttemptState::Preempted })
}

/// `calls._stop`: whether a recalled attempt has started after all.
pub fn look(model: &Protocol, s: &State, w: usize, call: Call) -> Option<State> {
    let Worker::Stop { a, why, uid, is_early, was_sent } = s.workers[w] else { return None };
    let at = a as usize;
    let asks = was_sent && why == Stop::Recall && model.keeps(Guard::RecallLooksAtPods);
    let may_ask = was_sent && why == Stop::Recall && call == Call::Answered && uid != 0;
    let mut next = if asks { begin_call(s, at, call)? } else { s.clone() };
    if call == Call::Refused || !asks && call != Call::Answered {
        return None;
    }
    let name = s.names[at];
    let shows_pods = !s.is_impostor(at) && name.started & !name.unlisted & !name.gone & (1 << uid) != 0;
    if may_ask && !asks && shows_pods && next.db.rows[at].state.may_run() {
        next.breaks(Break::RecalledARun);
    }
    next.workers[w] = if !was_sent {
        Worker::Record { a, outcome: Outcome::Ended(AttemptState::Abandoned) }
    } else if call == Call::Lost {
        Worker::Record { a, outcome: Outcome::Failed }
    } else if asks && uid != 0 && shows_pods && s.answering(at).phase != Phase::Deleting {
        Worker::Record { a, outcome: Outcome::Underway(why) }
    } else {
        Worker::Delete { a, why, uid, is_early }
    };
    Some(next)
}

/// `calls._delete_objects`: asks for the object by its name, and deletes it by its uid if it is the attempt's.
pub fn delete(model: &Protocol, s: &State, w: usize, call: Call) -> Option<State> {
    let Worker::Delete { a, why, uid, is_early } = s.workers[w] else { return None };
    let at = a as usize;
    if call == Call::Refused {
        return None;
    }
    let mut next = begin_call(s, at, call)?;
    let found = next.answering(at);
    let is_ours = found.phase != Phase::Absent && (uid == 0 || found.uid == uid) && !found.foreign;
    let mut outcome = Outcome::Stopping;
    if call == Call::Lost {
        // The reading request is lost, or the deletion that follows it.
        if is_ours && found.phase != Phase::Deleting {
            next.names[at].deletes |= 1 << found.uid;
        }
        outcome = Outcome::Failed;
    } else if is_ours && found.phase == Phase::Succeeded && why != Stop::Cancel && model.keeps(Guard::SuccessIsKept) {
        // The next report of an observer ends the attempt.
    } else if is_ours {
        if found.phase == Phase::Succeeded && why != Stop::Cancel && next.db.rows[at].state.is_live() {
            next.breaks(Break::SuccessDeleted);
        }
        if found.phase != Phase::Deleting {
            next.names[at].deletes |= 1 << found.uid;
            super::world::begin_deletion(model, &mut next, at);
        }
        if !model.keeps(Guard::EndWaitsForDeletion) {
            outcome = stopped(why, is_early);
        }
    } else {
        let guard =
            if found.phase == Phase::Absent { Guard::AbsenceNeedsIdentity } else { Guard::OtherUidNeedsIdentity };
        if s.is_impostor(at) && model.keeps(guard) {
            outcome = Outcome::Failed;
        } else if !is_early
            && why != Stop::Cancel
            && listed_runs(s, at) & (1 << uid) != 0
            && model.keeps(Guard::GoneNeedsPods)
        {
            outcome = Outcome::Stopping;
        } else {
            outcome = stopped(why, is_early);
        }
    }
    next.workers[w] = Worker::Record { a, outcome };
    Some(next)
}

/// The pods that run and that the cluster at the address lists.
pub fn listed_runs(s: &State, a: usize) -> u8 {
    if s.is_impostor(a) {
        0
    } else {
        s.names[a].runs & !s.names[a].unlisted
    }
}

fn stopped(why: Stop, is_early: bool) -> Outcome {
    Outcome::Ended(match (is_early, why) {
        (true, _) => AttemptState::Abandoned,
        (_, Stop::Cancel) => AttemptState::Cancelled,
        _ => AttemptState::Preempted,
    })
}

/// `dispatch._record`: what the visit found, fenced by the claim's token.
pub fn record(model: &Protocol, s: &State, w: usize) -> Option<State> {
    let Worker::Record { a, outcome } = s.workers[w] else { return None };
    let at = a as usize;
    let mut next = s.clone();
    next.workers[w] = Worker::Idle;
    let row = &mut next.db.rows[at];
    let is_ours = row.token == w as u8 + 1;
    match outcome {
        Outcome::Ended(state) if is_ours || !model.keeps(Guard::EndChecksToken) => {
            end(model, &mut next, at, state);
            if !is_ours && next.db != s.db {
                next.breaks(Break::StaleWorkerWrote);
            }
        }
        _ if !is_ours => {}
        Outcome::Released => {
            row.released = true;
            row.committed = true;
            row.due = row.stop != Stop::None && model.keeps(Guard::CancelWakesDispatch);
            if !model.keeps(Guard::WriteAhead) && row.state.is_early() {
                row.state = AttemptState::Starting;
            }
        }
        Outcome::Failed => row.due = row.state.is_live() && model.keeps(Guard::FailedVisitIsRepeated),
        Outcome::Stopping => row.due = row.state.is_live(),
        Outcome::Withdrawn if row.stop == Stop::None && row.state.is_live() => {
            row.stop = Stop::Refused;
            row.due = true;
        }
        Outcome::Underway(why) if row.stop == why || !model.keeps(Guard::LetRunKeepsCancel) => {
            row.stop = Stop::None;
            row.due = false;
        }
        _ => {}
    }
    Some(next)
}

/// The state in which a request is sent: a lost or refused one costs its budget, and nothing answers over a cut line.
fn begin_call(s: &State, a: usize, call: Call) -> Option<State> {
    let mut next = s.clone();
    match call {
        Call::Answered if s.is_cut(a) => return None,
        Call::Lost if !s.is_cut(a) => next.faults.losses = next.faults.losses.checked_sub(1)?,
        Call::Refused if s.is_cut(a) => return None,
        Call::Refused => next.faults.refusals = next.faults.refusals.checked_sub(1)?,
        _ => {}
    }
    Some(next)
}

/// The worker is killed, or its process restarts.
pub fn crash(s: &State, w: usize) -> Option<State> {
    if s.workers[w] == Worker::Idle {
        return None;
    }
    let mut next = s.clone();
    next.faults.crashes = next.faults.crashes.checked_sub(1)?;
    next.workers[w] = Worker::Idle;
    Some(next)
}
