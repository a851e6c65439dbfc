//! How attempts end: `federation.operations.endings` and `transitions.end`.

use crate::guards::Guard;
use crate::model::Protocol;
use crate::state::*;

/// The end of an attempt and its consequence for the job (`endings._consequence`). Without effect on an ended attempt.
pub fn end(model: &Protocol, s: &mut State, a: usize, to: AttemptState) {
    let row = s.db.rows[a];
    let may_end = match to {
        AttemptState::Abandoned => row.state.is_early(),
        AttemptState::Lost => row.state.is_unknown(),
        _ => row.state.may_run(),
    };
    if !may_end && (model.keeps(Guard::EndedStaysEnded) || !row.state.is_ended()) {
        return;
    }
    let runs_again = matches!(to, AttemptState::Preempted | AttemptState::Abandoned);
    if runs_again && s.names[a].runs != 0 && !s.names[a].excused {
        s.breaks(Break::RequeuedWhileRunning);
    }
    let row = &mut s.db.rows[a];
    row.state = to;
    row.due = false;
    if to == AttemptState::Abandoned && !row.committed || !model.keeps(Guard::SettleWaitsForPods) {
        row.hold = Hold::Ended;
        row.settled = true;
    }
    conclude(model, s, a, to);
}

fn conclude(model: &Protocol, s: &mut State, a: usize, to: AttemptState) {
    let job = &mut s.db.jobs[model.bounds.job_of(a)];
    if job.state.is_ended() {
        let told = matches!(to, AttemptState::Succeeded | AttemptState::Failed);
        if !model.keeps(Guard::EndedStaysEnded) && told {
            job.state = if to == AttemptState::Succeeded { JobState::Succeeded } else { JobState::Failed };
            s.breaks(Break::EndedChanged);
        }
        return;
    }
    let outcome = match to {
        AttemptState::Succeeded => JobState::Succeeded,
        AttemptState::Failed => JobState::Failed,
        _ => JobState::Queued,
    };
    job.state = match job.state {
        JobState::Cancelling if model.keeps(Guard::CancelIsFinal) => JobState::Cancelled,
        _ => outcome,
    };
    if job.cancel_acked && job.state != JobState::Cancelled {
        s.breaks(Break::CancelForgotten);
    }
}
