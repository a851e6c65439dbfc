//! Clients, the scheduling cycle, the sweep, settlement and administrators.

use super::ends::end;
use crate::guards::Guard;
use crate::model::Protocol;
use crate::state::*;

/// `cycle._apply`: a waiting job gets an attempt with its hold on a cluster that answers.
pub fn place(model: &Protocol, s: &State, job: usize, cluster: u8) -> Option<State> {
    let waits = s.db.jobs[job].state == JobState::Queued;
    let is_stale = !model.keeps(Guard::PlaceLocksJob) && s.db.jobs[job].state == JobState::Dispatching;
    let is_silent = s.db.silent & State::bit(cluster) != 0;
    let a = model.bounds.names_of(job).take(model.bounds.tries).find(|&a| s.names[a].home == 0)?;
    if !waits && !is_stale || is_silent || s.db.standstill {
        return None;
    }
    let mut next = s.clone();
    if model.bounds.names_of(job).any(|other| s.db.rows[other].state.is_live()) {
        next.breaks(Break::TwoLiveAttempts);
    }
    next.names[a].home = cluster;
    next.db.rows[a] = Row { state: AttemptState::Reserved, due: true, hold: Hold::Pending, ..Row::default() };
    next.db.jobs[job].state = JobState::Dispatching;
    Some(next)
}

/// `cancellation.request_cancellation`
pub fn cancel(model: &Protocol, s: &State, job: usize) -> Option<State> {
    if s.db.jobs[job].state.is_ended() {
        return None;
    }
    let mut next = s.clone();
    next.faults.cancels = next.faults.cancels.checked_sub(1)?;
    next.db.jobs[job].cancel_acked = true;
    let mut has_attempt = false;
    for a in model.bounds.names_of(job) {
        let row = &mut next.db.rows[a];
        if row.state.is_live() {
            row.stop = Stop::Cancel;
            row.due = true;
            has_attempt = true;
        }
    }
    next.db.jobs[job].state = if has_attempt { JobState::Cancelling } else { JobState::Cancelled };
    Some(next)
}

/// `continuity.lose_sight`, after the cluster was silent for too long; each sweep repeats it.
pub fn lose_sight(model: &Protocol, s: &State, cluster: u8) -> Option<State> {
    let bit = State::bit(cluster);
    if (s.cut | s.impostor | s.db.silent) & bit == 0 {
        return None;
    }
    let mut next = s.clone();
    next.db.silent |= bit;
    for a in 0..NAMES {
        if next.names[a].home != cluster {
            continue;
        }
        let row = &mut next.db.rows[a];
        match row.state {
            AttemptState::Reserved | AttemptState::Created
                if s.db.standstill && model.keeps(Guard::StandstillEndsNothing) => {}
            AttemptState::Reserved | AttemptState::Created => end(model, &mut next, a, AttemptState::Abandoned),
            AttemptState::Starting if !model.keeps(Guard::CommittedIsNotAbandoned) => {
                row.state = AttemptState::Created;
                end(model, &mut next, a, AttemptState::Abandoned);
            }
            AttemptState::Starting | AttemptState::Running if !model.keeps(Guard::UnknownIsHeld) => {
                end(model, &mut next, a, AttemptState::Preempted);
            }
            AttemptState::Starting => row.state = AttemptState::UnknownStarting,
            AttemptState::Running => row.state = AttemptState::UnknownRunning,
            _ => {}
        }
    }
    (next != *s).then_some(next)
}

/// `clusters.operations.record_contact`: the cluster answers again. Dispatch may visit it before sight is regained.
pub fn contact(s: &State, cluster: u8) -> Option<State> {
    let bit = State::bit(cluster);
    if (s.cut | s.impostor) & bit != 0 || s.db.silent & bit == 0 {
        return None;
    }
    let mut next = s.clone();
    next.db.silent &= !bit;
    Some(next)
}

/// `continuity.regain_sight`, by the sweep
pub fn regain_sight(model: &Protocol, s: &State, cluster: u8) -> Option<State> {
    let bit = State::bit(cluster);
    if s.db.silent & bit != 0 {
        return None;
    }
    let mut next = s.clone();
    for a in 0..NAMES {
        if next.names[a].home != cluster || !model.keeps(Guard::SightIsRegained) {
            continue;
        }
        let row = &mut next.db.rows[a];
        match row.state {
            AttemptState::UnknownStarting => row.state = AttemptState::Starting,
            AttemptState::UnknownRunning => row.state = AttemptState::Running,
            _ => {}
        }
    }
    (next != *s).then_some(next)
}

/// `continuity.recall_unstarted`: an attempt without a pod that was seen to start, after 15 minutes or for a drain.
pub fn recall(s: &State, a: usize) -> Option<State> {
    let row = s.db.rows[a];
    let is_waiting = row.state.is_early() || row.state == AttemptState::Starting;
    if !is_waiting || row.stop != Stop::None || row.pod != PodSeen::None {
        return None;
    }
    let mut next = s.clone();
    next.faults.recalls = next.faults.recalls.checked_sub(1)?;
    next.db.rows[a].stop = Stop::Recall;
    next.db.rows[a].due = true;
    Some(next)
}

/// `preemption`, `maintenance` and `suspension`: what may run is stopped for another reason than its own, and the job is
/// placed again later. A request that pods could refute becomes one that they cannot.
pub fn displace(s: &State, a: usize) -> Option<State> {
    let row = s.db.rows[a];
    if !row.state.is_live() || !matches!(row.stop, Stop::None | Stop::Recall) {
        return None;
    }
    let mut next = s.clone();
    next.faults.displacements = next.faults.displacements.checked_sub(1)?;
    next.db.rows[a].stop = Stop::Cause;
    next.db.rows[a].due = true;
    Some(next)
}

/// `attestation.attest_run`: an administrator answers for it that nothing of the run is left.
pub fn attest(model: &Protocol, s: &State, a: usize) -> Option<State> {
    if !s.db.rows[a].state.may_run() {
        return None;
    }
    let mut next = s.clone();
    next.faults.attestations = next.faults.attestations.checked_sub(1)?;
    next.names[a].excused = true;
    let row = &mut next.db.rows[a];
    row.state = AttemptState::UnknownRunning;
    row.told = true;
    if row.pod == PodSeen::Running {
        row.pod = PodSeen::Over;
    }
    end(model, &mut next, a, AttemptState::Lost);
    Some(next)
}

/// `relook.look_at_pods`: the cluster is asked for the pods of an ended attempt.
pub fn look_at_pods(model: &Protocol, s: &State, a: usize) -> Option<State> {
    let row = s.db.rows[a];
    let believes = !s.is_impostor(a) || !model.keeps(Guard::LookAsksTheSameCluster);
    if !row.state.is_ended()
        || row.settled
        || row.uid == 0
        || s.is_cut(a)
        || !believes
        || row.state == AttemptState::Lost
    {
        return None;
    }
    let mut next = s.clone();
    let (name, bit) = (s.names[a], 1 << row.uid);
    let seen = &mut next.db.rows[a];
    seen.told = true;
    if super::dispatch::listed_runs(s, a) & bit != 0 {
        seen.pod = PodSeen::Running;
    } else if seen.pod == PodSeen::Running || name.over & !name.unlisted & bit != 0 {
        seen.pod = PodSeen::Over;
    }
    (next != *s).then_some(next)
}

/// `settlement._settle_together`. With `patience`, the cluster has not reported the pods for ten minutes.
pub fn settle(s: &State, a: usize, patience: bool) -> Option<State> {
    let row = s.db.rows[a];
    if !row.state.is_ended() || row.settled {
        return None;
    }
    let is_quiet = row.pod != PodSeen::Running;
    let is_known = is_quiet && (!row.committed || row.uid == 0 || row.told || row.pod == PodSeen::Over);
    let is_unreachable = s.is_cut(a) || s.is_impostor(a);
    if patience && (is_known || !is_unreachable) || !patience && !is_known {
        return None;
    }
    let mut next = s.clone();
    next.names[a].estimated |= patience;
    next.db.rows[a].settled = true;
    next.db.rows[a].hold = Hold::Ended;
    Some(next)
}
