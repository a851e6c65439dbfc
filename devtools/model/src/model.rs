//! The protocol as a transition system for Stateright: every step that is possible in a state, and what must hold.

use crate::guards::Guard;
use crate::state::*;
use crate::steps::dispatch::{self, Call};
use crate::steps::reports::{self, Report};
use crate::steps::world::{self, Life, Line, Request, Stranger};
use crate::steps::{gateway, restore};
use stateright::{Model, Property};

/// The size of one exploration.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub name: &'static str,
    pub jobs: usize,
    pub clusters: usize,
    pub workers: usize,
    /// Attempts of a job.
    pub tries: usize,
    pub faults: Faults,
    /// Objects of one name, one after the other.
    pub uids: u8,
    /// Lifts the assumption that no request outlives a restore of the database.
    pub late_requests_survive_restores: bool,
}

impl Bounds {
    /// One job alone may use every name.
    pub fn job_of(&self, a: usize) -> usize {
        if self.jobs == 1 {
            0
        } else {
            a / TRIES
        }
    }

    pub fn names_of(&self, job: usize) -> std::ops::Range<usize> {
        match (self.jobs, job) {
            (1, 0) => 0..NAMES,
            (1, _) => 0..0,
            _ => job * TRIES..(job + 1) * TRIES,
        }
    }
}

pub struct Protocol {
    pub bounds: Bounds,
    pub dropped: Option<Guard>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Place(usize, u8),
    Cancel(usize),
    Claim(usize, usize),
    Create(usize, Call),
    Commit(usize),
    HoldBack(usize),
    Release(usize, Call),
    Look(usize, Call),
    Delete(usize, Call),
    Record(usize),
    Crash(usize),
    Deliver(usize, Request),
    Live(usize, bool, Life),
    Interfere(usize, Stranger),
    Rewire(u8, Line),
    Report(usize, Report),
    LoseSight(u8),
    Contact(u8),
    RegainSight(u8),
    Recall(usize),
    Displace(usize),
    Attest(usize),
    Clean(usize),
    LookAtPods(usize),
    Settle(usize),
    SettleByPatience(usize),
    Save,
    Restore,
    Close,
    Compare(u8),
    Open,
}

const CALLS: [Call; 3] = [Call::Answered, Call::Lost, Call::Refused];

impl Protocol {
    pub fn keeps(&self, guard: Guard) -> bool {
        self.dropped != Some(guard)
    }

    pub fn start(&self) -> State {
        let mut jobs = [Job::default(); JOBS];
        for job in jobs.iter_mut().skip(self.bounds.jobs) {
            job.state = JobState::Cancelled;
        }
        State {
            db: Database { jobs, ..Database::default() },
            saved: None,
            names: [Name::default(); NAMES],
            cut: 0,
            impostor: 0,
            workers: [Worker::Idle; WORKERS],
            faults: self.bounds.faults,
            broken: None,
        }
    }

    pub fn steps(&self, s: &State, found: &mut Vec<Step>) {
        for job in 0..self.bounds.jobs {
            if !s.db.jobs[job].state.is_ended() {
                found.push(Step::Cancel(job));
                found.extend((1..=self.bounds.clusters as u8).map(|c| Step::Place(job, c)));
            }
        }
        for w in 0..self.bounds.workers {
            self.worker_steps(s, w, found);
        }
        for a in (0..NAMES).filter(|&a| s.names[a].home != 0) {
            name_steps(s, a, self.bounds.uids, found);
        }
        for cluster in 1..=self.bounds.clusters as u8 {
            found
                .extend([Line::Cut, Line::Mended, Line::ToAnother, Line::Back].map(|line| Step::Rewire(cluster, line)));
            found.extend([Step::LoseSight(cluster), Step::Contact(cluster), Step::RegainSight(cluster)]);
            found.extend([Step::Compare(cluster)]);
        }
        found.extend([Step::Save, Step::Restore, Step::Close, Step::Open]);
    }

    fn worker_steps(&self, s: &State, w: usize, found: &mut Vec<Step>) {
        match s.workers[w] {
            Worker::Idle => {
                found.extend((0..NAMES).filter(|&a| s.db.rows[a].due).map(|a| Step::Claim(w, a)));
            }
            Worker::Start { .. } => found.extend(CALLS.map(|call| Step::Create(w, call))),
            Worker::Commit { .. } => found.extend([Step::Commit(w), Step::HoldBack(w)]),
            Worker::Release { .. } => found.extend(CALLS.map(|call| Step::Release(w, call))),
            Worker::Stop { .. } => found.extend(CALLS.map(|call| Step::Look(w, call))),
            Worker::Delete { .. } => found.extend(CALLS.map(|call| Step::Delete(w, call))),
            Worker::Record { .. } => found.push(Step::Record(w)),
        }
        if s.faults.crashes > 0 {
            found.push(Step::Crash(w));
        }
    }

    /// The state after a step, as the one that stands for those alike; None if the step is not possible.
    pub fn apply(&self, s: &State, step: Step) -> Option<State> {
        self.take(s, step).map(|next| crate::symmetry::representative(self, next))
    }

    /// The state after a step; None if the step is not possible.
    pub fn take(&self, s: &State, step: Step) -> Option<State> {
        match step {
            Step::Place(job, cluster) => gateway::place(self, s, job, cluster),
            Step::Cancel(job) => gateway::cancel(self, s, job),
            Step::Claim(w, a) => dispatch::claim(s, w, a),
            Step::Create(w, call) => dispatch::create(self, s, w, call),
            Step::Commit(w) => dispatch::commit(self, s, w),
            Step::HoldBack(w) => dispatch::hold_back(s, w),
            Step::Release(w, call) => dispatch::release(self, s, w, call),
            Step::Look(w, call) => dispatch::look(self, s, w, call),
            Step::Delete(w, call) => dispatch::delete(self, s, w, call),
            Step::Record(w) => dispatch::record(self, s, w),
            Step::Crash(w) => dispatch::crash(s, w),
            Step::Deliver(a, request) => world::deliver(self, s, a, request),
            Step::Live(a, there, life) => world::live(s, a, there, life),
            Step::Interfere(a, how) => world::interfere(self, s, a, how),
            Step::Rewire(cluster, line) => world::rewire(s, cluster, line),
            Step::Report(a, what) => reports::report(self, s, a, what),
            Step::LoseSight(cluster) => gateway::lose_sight(self, s, cluster),
            Step::Contact(cluster) => gateway::contact(s, cluster),
            Step::RegainSight(cluster) => gateway::regain_sight(self, s, cluster),
            Step::Recall(a) => gateway::recall(s, a),
            Step::Displace(a) => gateway::displace(s, a),
            Step::Attest(a) => gateway::attest(self, s, a),
            Step::Clean(a) => reports::clean(self, s, a),
            Step::LookAtPods(a) => gateway::look_at_pods(self, s, a),
            Step::Settle(a) => gateway::settle(s, a, false),
            Step::SettleByPatience(a) => gateway::settle(s, a, true),
            Step::Save => restore::save(s),
            Step::Restore => restore::restore(self, s),
            Step::Close => restore::close(s),
            Step::Compare(cluster) => restore::compare(self, s, cluster),
            Step::Open => restore::open(self, s),
        }
    }
}

fn name_steps(s: &State, a: usize, most_uids: u8, found: &mut Vec<Step>) {
    let (row, name) = (s.db.rows[a], s.names[a]);
    if name.create {
        found.push(Step::Deliver(a, Request::Create));
    }
    for uid in 1..=most_uids {
        if name.releases & (1 << uid) != 0 {
            found.push(Step::Deliver(a, Request::Release(uid)));
        }
        if name.deletes & (1 << uid) != 0 {
            found.push(Step::Deliver(a, Request::Delete(uid)));
        }
    }
    let lives = [
        Life::PodStarts,
        Life::Succeeds,
        Life::Fails,
        Life::FailsBeforeItsPod,
        Life::FailsUnstarted,
        Life::DeletionEnds,
    ];
    for there in [false, true] {
        let object = if there { name.there } else { name.here };
        if object.phase != Phase::Absent {
            found.extend(lives.map(|life| Step::Live(a, there, life)));
        }
    }
    if name.runs != 0 {
        found.push(Step::Live(a, false, Life::PodEnds));
    }
    let strangers = [
        Stranger::DeletesInBackground,
        Stranger::DeletesInForeground,
        Stranger::Plants,
        Stranger::ForgetsObject,
        Stranger::RevivesObject,
    ];
    found.extend(strangers.map(|how| Step::Interfere(a, how)));
    if row.state == AttemptState::Free {
        found.push(Step::Clean(a));
        return;
    }
    let reports =
        [Report::PodStarted, Report::PodOver, Report::Succeeded, Report::Failed, Report::Interrupted, Report::Gone];
    found.extend(reports.map(|what| Step::Report(a, what)));
    found.extend([Step::Recall(a), Step::Displace(a), Step::Attest(a), Step::Clean(a)]);
    if row.state.is_ended() && !row.settled {
        found.extend([Step::LookAtPods(a), Step::Settle(a), Step::SettleByPatience(a)]);
    }
}

/// Runs of a job that overlap, beyond those that Kubernetes or an administrator answers for.
pub fn runs_once(model: &Protocol, s: &State) -> bool {
    (0..JOBS).all(|job| {
        let runs = model.bounds.names_of(job).filter(|&a| !s.names[a].excused).map(|a| s.names[a].runs.count_ones());
        runs.sum::<u32>() <= 1
    })
}

/// A hold ends only after its run, unless its cluster did not answer for the documented time.
pub fn holds_cover_runs(s: &State) -> bool {
    (0..NAMES).all(|a| {
        let (row, name) = (s.db.rows[a], s.names[a]);
        row.hold != Hold::Ended || name.excused || name.estimated || name.runs & (1 << row.uid) & !1 == 0
    })
}

fn unbroken(s: &State, what: Break) -> bool {
    s.broken != Some(what)
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        if state.broken.is_none() {
            self.steps(state, actions);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        self.apply(state, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("runs never overlap", runs_once),
            Property::always("nothing runs uncommitted", |_, s| unbroken(s, Break::RanUncommitted)),
            Property::always("no job waits again while it runs", |_, s| unbroken(s, Break::RequeuedWhileRunning)),
            Property::always("a cancel is never forgotten", |_, s| unbroken(s, Break::CancelForgotten)),
            Property::always("what has ended stays ended", |_, s| unbroken(s, Break::EndedChanged)),
            Property::always("foreign objects are untouched", |_, s| unbroken(s, Break::TouchedForeign)),
            Property::always("a job has one live attempt", |_, s| unbroken(s, Break::TwoLiveAttempts)),
            Property::always("a hold covers its run", |_, s| holds_cover_runs(s)),
            Property::always("a success is not deleted unrecorded", |_, s| unbroken(s, Break::SuccessDeleted)),
            Property::always("a stop wins over a start", |_, s| unbroken(s, Break::StartedAfterStop)),
            Property::always("a stale worker writes nothing", |_, s| unbroken(s, Break::StaleWorkerWrote)),
            Property::always("what runs is not recalled", |_, s| unbroken(s, Break::RecalledARun)),
        ]
    }
}
