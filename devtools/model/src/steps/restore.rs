//! A restored database: `federation.operations.restoration`.

use crate::guards::Guard;
use crate::model::Protocol;
use crate::state::*;

/// A backup of the database.
pub fn save(s: &State) -> Option<State> {
    if s.saved.is_some() || s.faults.database_restores == 0 {
        return None;
    }
    let mut next = s.clone();
    next.saved = Some(Box::new(s.db));
    Some(next)
}

/// All processes stop, the backup is restored, a standstill begins, and the processes start.
///
/// Requests that are on their way are answered or dropped before: an assumption, which
/// `Bounds::late_requests_survive_restores` lifts.
pub fn restore(model: &Protocol, s: &State) -> Option<State> {
    let saved = s.saved.as_ref()?;
    let mut next = s.clone();
    next.faults.database_restores = next.faults.database_restores.checked_sub(1)?;
    next.db = **saved;
    next.saved = None;
    next.workers = [Worker::Idle; WORKERS];
    next.db.standstill = model.keeps(Guard::RestoreStandsStill);
    next.db.compared = 0;
    next.db.strangers = 0;
    if !model.bounds.late_requests_survive_restores {
        for name in &mut next.names {
            name.create = false;
            name.releases = 0;
            name.deletes = 0;
        }
    }
    Some(next)
}

/// `restoration.close_on_request`: an operator closes dispatch while everything runs.
pub fn close(s: &State) -> Option<State> {
    if s.db.standstill {
        return None;
    }
    let mut next = s.clone();
    next.faults.closings = next.faults.closings.checked_sub(1)?;
    next.db.standstill = true;
    next.db.compared = 0;
    next.db.strangers = 0;
    Some(next)
}

/// `restoration.take_in`, for one cluster.
pub fn compare(model: &Protocol, s: &State, cluster: u8) -> Option<State> {
    let bit = State::bit(cluster);
    if !s.db.standstill || (s.cut | s.impostor | s.db.silent) & bit != 0 {
        return None;
    }
    let mut next = s.clone();
    let mut strangers = false;
    for a in 0..NAMES {
        let object = s.names[a].here;
        if s.names[a].home != cluster || object.phase == Phase::Absent || object.foreign {
            continue;
        }
        strangers |= take_in(model, &mut next, a, object);
    }
    next.db.compared |= bit;
    next.db.strangers = if strangers { next.db.strangers | bit } else { next.db.strangers & !bit };
    (next != *s).then_some(next)
}

/// Whether the object runs for no known attempt, and was not adopted.
fn take_in(model: &Protocol, next: &mut State, a: usize, object: Object) -> bool {
    let row = next.db.rows[a];
    let job = model.bounds.job_of(a);
    let caught_up = Row {
        state: AttemptState::Starting,
        uid: object.uid,
        committed: true,
        released: true,
        sent: true,
        hold: Hold::Pending,
        ..Row::default()
    };
    let is_suspended = object.phase == Phase::Suspended;
    if row.state != AttemptState::Free {
        if row.state.is_early() && !is_suspended && (row.uid == 0 || row.uid == object.uid) {
            let wakes = row.stop != Stop::None && model.keeps(Guard::CatchUpKeepsCancel);
            next.db.rows[a] = Row { stop: row.stop, due: wakes, ..caught_up };
        }
        return false;
    }
    if is_suspended {
        super::world::begin_deletion(model, next, a);
        return false;
    }
    if next.db.jobs[job].state == JobState::Queued {
        if model.keeps(Guard::RestoreAdopts) {
            next.db.rows[a] = caught_up;
            next.db.jobs[job].state = JobState::Dispatching;
        }
        return false;
    }
    // A pod may still start while its Job is being deleted.
    next.names[a].runs != 0 || matches!(object.phase, Phase::Active | Phase::Deleting)
}

/// `restoration.open_dispatch`, without a note: every cluster was compared, and nothing is left.
pub fn open(model: &Protocol, s: &State) -> Option<State> {
    let all = (1 << model.bounds.clusters) - 1;
    let is_left = s.db.strangers != 0 && model.keeps(Guard::RestoreCountsStrangers);
    if !s.db.standstill || s.db.compared != all || is_left {
        return None;
    }
    let mut next = s.clone();
    next.db.standstill = false;
    Some(next)
}
