//! Observers and reconciliation: what the gateway learns of its objects.
//!
//! A report counts by its uid, and its facts stay true: so any observer may record any fact that was ever true at any
//! time, once or more often. This covers observers that are late, stopped for a while, or two at the same cluster.

use super::ends::end;
use crate::guards::Guard;
use crate::model::Protocol;
use crate::state::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Report {
    PodStarted,
    PodOver,
    Succeeded,
    Failed,
    /// The failure was an interruption, and the job has a retry left.
    Interrupted,
    Gone,
}

/// `observation.record_observations`
pub fn report(model: &Protocol, s: &State, a: usize, what: Report) -> Option<State> {
    let (row, name) = (s.db.rows[a], s.names[a]);
    let bit = if row.uid == 0 { 0 } else { 1u8 << row.uid };
    let is_true = match what {
        Report::PodStarted => name.started & !name.unlisted,
        Report::PodOver => name.over & !name.runs & !name.unlisted,
        Report::Succeeded => name.succeeded & !name.unlisted,
        Report::Failed | Report::Interrupted => name.failed & !name.unlisted,
        Report::Gone => name.gone | requested_in_vain(s, a),
    } & bit
        != 0;
    let is_listed = s.answering(a).phase != Phase::Absent && s.answering(a).uid == row.uid;
    let is_missed = what == Report::Gone && bit != 0 && row.released && !is_listed && lists(model, s, a);
    if !is_true && !is_missed || row.state == AttemptState::Lost {
        return None;
    }
    let mut next = s.clone();
    match what {
        Report::PodStarted => see_pod(model, &mut next, a),
        Report::PodOver => next.db.rows[a].pod = PodSeen::Over,
        Report::Succeeded => end(model, &mut next, a, AttemptState::Succeeded),
        Report::Failed => end(model, &mut next, a, AttemptState::Failed),
        Report::Interrupted => interrupt(model, &mut next, a)?,
        Report::Gone => vanish(model, &mut next, a),
    }
    (next != *s).then_some(next)
}

/// The uid of a released object that the registered cluster, asked for it, does not have (`evidence.standing_of`).
fn requested_in_vain(s: &State, a: usize) -> u8 {
    let (row, name) = (s.db.rows[a], s.names[a]);
    let is_answered = !s.is_cut(a) && !s.is_impostor(a);
    if row.released && is_answered && name.here.uid != row.uid {
        name.unlisted
    } else {
        0
    }
}

/// Whether absence from a list of the cluster that answers counts: never, in the protocol.
fn lists(model: &Protocol, s: &State, a: usize) -> bool {
    !model.keeps(Guard::AbsenceNeedsRequest) && !s.is_cut(a)
}

fn see_pod(model: &Protocol, next: &mut State, a: usize) {
    let row = &mut next.db.rows[a];
    if row.pod == PodSeen::None {
        row.pod = PodSeen::Running;
    }
    if matches!(row.state, AttemptState::Starting) || row.state.is_unknown() {
        row.state = AttemptState::Running;
        let job = &mut next.db.jobs[model.bounds.job_of(a)];
        if job.state == JobState::Dispatching {
            job.state = JobState::Running;
        }
    }
}

/// `failures.stop_for_another`
fn interrupt(model: &Protocol, next: &mut State, a: usize) -> Option<()> {
    let row = &mut next.db.rows[a];
    if row.stop != Stop::None || !row.state.is_live() {
        return None;
    }
    next.faults.retries = next.faults.retries.checked_sub(1)?;
    if !model.keeps(Guard::RetryWaitsForRemoval) {
        end(model, next, a, AttemptState::Preempted);
        return Some(());
    }
    row.stop = Stop::Cause;
    row.due = true;
    Some(())
}

/// `observation.what_vanished`: the object was deleted, by the gateway or by somebody else.
fn vanish(model: &Protocol, next: &mut State, a: usize) {
    let row = &mut next.db.rows[a];
    let to = match row.stop {
        _ if row.state.is_early() => AttemptState::Abandoned,
        Stop::Recall | Stop::Cause | Stop::Refused if model.keeps(Guard::GoneNeedsPods) => {
            // Dispatch asks for the pods before the job may be placed again (`transitions.visit_again`).
            row.due |= row.state.is_live();
            return;
        }
        Stop::Cancel => AttemptState::Cancelled,
        Stop::None if model.keeps(Guard::DeletedIsNotRerun) => AttemptState::Failed,
        _ => AttemptState::Preempted,
    };
    end(model, next, a, to);
}

/// `reconciliation._unwanted`: what ended attempts and unknown ones left on a cluster is deleted by uid.
pub fn clean(model: &Protocol, s: &State, a: usize) -> Option<State> {
    let (row, name) = (s.db.rows[a], s.names[a]);
    let object = name.here;
    let is_listed = object.phase != Phase::Absent && object.phase != Phase::Deleting && !object.foreign;
    let is_answering = !s.is_cut(a) && !s.is_impostor(a) && s.db.silent & State::bit(name.home) == 0;
    let is_kept = matches!(row.state, AttemptState::Succeeded | AttemptState::Failed);
    let is_running = object.phase == Phase::Active;
    let is_leftover = row.state.is_ended() && (!is_kept || row.settled || is_running && object.uid == row.uid);
    let is_orphan = row.state == AttemptState::Free && !is_running;
    if row.state == AttemptState::Lost && !model.keeps(Guard::LostIsDeleted) {
        return None;
    }
    if !is_listed || !is_answering || s.db.standstill || !is_leftover && !is_orphan {
        return None;
    }
    let mut next = s.clone();
    next.names[a].deletes |= 1 << object.uid;
    super::world::begin_deletion(model, &mut next, a);
    Some(next)
}
