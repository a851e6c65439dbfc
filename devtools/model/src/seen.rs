//! What of a state is seen in a real run: rows, objects and runs. Everything else is hidden: it follows, or stays open.

use crate::state::*;
use serde_json::Value;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptSeen {
    pub state: AttemptState,
    pub stop: Stop,
    pub uid: u8,
    pub settled: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameSeen {
    pub home: u8,
    pub here: Object,
    pub there: Object,
    pub runs: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub job: JobState,
    pub attempts: [AttemptSeen; NAMES],
    pub names: [NameSeen; NAMES],
    pub standstill: bool,
    /// Clusters at whose address another one answers, as a mask.
    pub elsewhere: u8,
}

impl Seen {
    pub fn of(s: &State) -> Self {
        let mut seen =
            Self { job: s.db.jobs[0].state, standstill: s.db.standstill, elsewhere: s.impostor, ..Self::default() };
        for a in 0..NAMES {
            let (row, name) = (s.db.rows[a], s.names[a]);
            let state = if row.state.is_unknown() { AttemptState::UnknownStarting } else { row.state };
            seen.attempts[a] = AttemptSeen { state, stop: row.stop, uid: row.uid, settled: row.settled };
            let (here, there) = (object_seen(name.here, name.runs), object_seen(name.there, name.runs));
            seen.names[a] = NameSeen { home: name.home, here, there, runs: name.runs };
        }
        seen.without_past()
    }

    /// Why a settled attempt was stopped is of no further consequence.
    fn without_past(mut self) -> Self {
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.settled) {
            attempt.stop = Stop::None;
        }
        self
    }

    /// Whether each part is as it was or as it will be.
    pub fn is_between(&self, old: &Self, new: &Self) -> bool {
        let is = |now: &dyn Fn(&Self) -> u64| now(self) == now(old) || now(self) == now(new);
        (0..NAMES).all(|a| {
            is(&|s| s.attempts[a].state as u64)
                && is(&|s| s.attempts[a].stop as u64)
                && is(&|s| s.attempts[a].uid.into())
                && is(&|s| s.attempts[a].settled.into())
                && is(&|s| s.names[a].home.into())
                && is(&|s| as_number(s.names[a].here))
                && is(&|s| as_number(s.names[a].there))
                && is(&|s| s.names[a].runs.into())
        }) && is(&|s| s.job as u64)
            && is(&|s| s.standstill.into())
            && is(&|s| s.elsewhere.into())
    }

    /// What is seen after an event: `set` has the parts that change.
    pub fn after(mut self, set: &Value) -> Result<Self, String> {
        for (part, value) in set.as_object().into_iter().flatten() {
            match part.as_str() {
                "job" => self.job = job_state(value)?,
                "standstill" => self.standstill = value.as_bool().ok_or("a standstill is true or false")?,
                "elsewhere" => self.elsewhere = mask(value)? >> 1,
                "attempts" => each(value, |a, field, value| set_attempt(&mut self, a, field, value))?,
                "objects" => each(value, |a, field, value| set_name(&mut self.names[a], field, value))?,
                _ => return Err(format!("nothing is called {part}")),
            }
        }
        Ok(self.without_past())
    }
}

/// An object that is being deleted and has no pods is as good as gone; how a Job ended is hidden, until it is reported.
fn object_seen(object: Object, runs: u8) -> Object {
    match object.phase {
        Phase::Succeeded | Phase::Failed => Object { phase: Phase::Active, ..object },
        Phase::Deleting if runs & (1 << object.uid) == 0 => Object::default(),
        _ => object,
    }
}

fn as_number(object: Object) -> u64 {
    (object.phase as u64) << 9 | u64::from(object.uid) << 1 | u64::from(object.foreign)
}

/// Calls `set` with the number, the field and the value of each part of one attempt or object.
fn each(value: &Value, mut set: impl FnMut(usize, &str, &Value) -> Result<(), String>) -> Result<(), String> {
    for (number, parts) in value.as_object().into_iter().flatten() {
        let a: usize = number.parse().map_err(|_| format!("{number} is not a number"))?;
        if a >= NAMES {
            return Err(format!("more than {NAMES} attempts"));
        }
        for (field, value) in parts.as_object().into_iter().flatten() {
            set(a, field, value)?;
        }
    }
    Ok(())
}

fn set_attempt(seen: &mut Seen, a: usize, field: &str, value: &Value) -> Result<(), String> {
    match field {
        "state" => seen.attempts[a].state = attempt_state(value)?,
        "stop" => seen.attempts[a].stop = stop(value)?,
        "uid" => seen.attempts[a].uid = small(value)?,
        "settled" => seen.attempts[a].settled = value.as_bool().ok_or("settled is true or false")?,
        "cluster" => seen.names[a].home = small(value)?,
        _ => return Err(format!("an attempt has no {field}")),
    }
    Ok(())
}

fn set_name(name: &mut NameSeen, field: &str, value: &Value) -> Result<(), String> {
    match field {
        "here" => name.here = object(value)?,
        "there" => name.there = object(value)?,
        "runs" => name.runs = mask(value)?,
        _ => return Err(format!("an object has no {field}")),
    }
    Ok(())
}

fn object(value: &Value) -> Result<Object, String> {
    let phase = match value["phase"].as_str() {
        Some("absent") => return Ok(Object::default()),
        Some("suspended") => Phase::Suspended,
        Some("active") => Phase::Active,
        Some("deleting") => Phase::Deleting,
        _ => return Err(format!("{value} is no object")),
    };
    Ok(Object { phase, uid: small(&value["uid"])?, foreign: value["foreign"].as_bool().unwrap_or(false) })
}

fn small(value: &Value) -> Result<u8, String> {
    match value.as_u64() {
        Some(number) if number < 8 => Ok(number as u8),
        _ => Err(format!("{value} is not a number below 8")),
    }
}

/// A list of numbers as bits.
fn mask(value: &Value) -> Result<u8, String> {
    value.as_array().into_iter().flatten().try_fold(0, |all, one| Ok(all | 1 << small(one)?))
}

fn job_state(value: &Value) -> Result<JobState, String> {
    Ok(match value.as_str() {
        // A suspended job waits like a queued one, for a user instead of a placement.
        Some("queued" | "suspended") => JobState::Queued,
        Some("dispatching") => JobState::Dispatching,
        Some("running") => JobState::Running,
        Some("cancelling") => JobState::Cancelling,
        Some("succeeded") => JobState::Succeeded,
        Some("failed") => JobState::Failed,
        Some("cancelled") => JobState::Cancelled,
        _ => return Err(format!("{value} is no state of a job")),
    })
}

fn attempt_state(value: &Value) -> Result<AttemptState, String> {
    Ok(match value.as_str() {
        Some("free") => AttemptState::Free,
        Some("reserved") => AttemptState::Reserved,
        Some("created") => AttemptState::Created,
        Some("starting") => AttemptState::Starting,
        Some("running") => AttemptState::Running,
        Some("unknown") => AttemptState::UnknownStarting,
        Some("succeeded") => AttemptState::Succeeded,
        Some("failed") => AttemptState::Failed,
        Some("cancelled") => AttemptState::Cancelled,
        Some("preempted") => AttemptState::Preempted,
        Some("abandoned") => AttemptState::Abandoned,
        Some("lost") => AttemptState::Lost,
        _ => return Err(format!("{value} is no state of an attempt")),
    })
}

fn stop(value: &Value) -> Result<Stop, String> {
    Ok(match value.as_str() {
        Some("none") => Stop::None,
        Some("cancel") => Stop::Cancel,
        Some("recall") => Stop::Recall,
        Some("cause") => Stop::Cause,
        Some("refused") => Stop::Refused,
        _ => return Err(format!("{value} is no reason to stop")),
    })
}
