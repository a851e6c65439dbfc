//! What the model knows: the gateway's rows, the clusters' objects, the requests on their way, and the workers.

pub const JOBS: usize = 2;
pub const TRIES: usize = 3;
pub const NAMES: usize = JOBS * TRIES;
pub const WORKERS: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobState {
    #[default]
    Queued,
    Dispatching,
    Running,
    Cancelling,
    Succeeded,
    Failed,
    Cancelled,
}

impl JobState {
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// `Free`: no row. `UnknownStarting` and `UnknownRunning` are `unknown` with `state_before_unknown`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttemptState {
    #[default]
    Free,
    Reserved,
    Created,
    Starting,
    Running,
    UnknownStarting,
    UnknownRunning,
    Succeeded,
    Failed,
    Cancelled,
    Preempted,
    Abandoned,
    Lost,
}

impl AttemptState {
    pub fn is_live(self) -> bool {
        self.is_early() || self.may_run()
    }
    /// Never committed to.
    pub fn is_early(self) -> bool {
        matches!(self, Self::Reserved | Self::Created)
    }
    pub fn may_run(self) -> bool {
        matches!(self, Self::Starting | Self::Running) || self.is_unknown()
    }
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::UnknownStarting | Self::UnknownRunning)
    }
    pub fn is_ended(self) -> bool {
        self != Self::Free && !self.is_live()
    }
}

/// Why a stop was requested (`stop_reason`). `Recall` is withdrawn if a pod has started; `Cause` is an interruption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stop {
    #[default]
    None,
    Cancel,
    Recall,
    Cause,
    Refused,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hold {
    #[default]
    None,
    Pending,
    Ended,
}

/// What the gateway recorded of the attempt's pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodSeen {
    #[default]
    None,
    Running,
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Job {
    pub state: JobState,
    /// A client was answered that its cancellation is accepted.
    pub cancel_acked: bool,
}

/// A row of `federation_attempt` with its one object, its one pod and its hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    pub state: AttemptState,
    pub stop: Stop,
    pub uid: u8,
    /// The worker with the claim's token, from 1; an expired claim keeps its token until another worker claims.
    pub token: u8,
    pub due: bool,
    pub sent: bool,
    pub committed: bool,
    pub released: bool,
    pub pod: PodSeen,
    /// `pods_told_at`
    pub told: bool,
    pub settled: bool,
    pub hold: Hold,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Database {
    pub jobs: [Job; JOBS],
    pub rows: [Row; NAMES],
    /// Clusters whose silence is recorded, as a mask.
    pub silent: u8,
    pub standstill: bool,
    pub compared: u8,
    pub strangers: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    #[default]
    Absent,
    Suspended,
    Active,
    Succeeded,
    Failed,
    Deleting,
}

/// The Job that has an attempt's name in one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Object {
    pub phase: Phase,
    pub uid: u8,
    /// Its labels are another's.
    pub foreign: bool,
}

/// What is true of one attempt's name, and the requests about it that the network may deliver at any time, repeatedly.
/// Masks have a bit per uid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The cluster it was placed on, from 1.
    pub home: u8,
    pub here: Object,
    /// The Job of this name in the other cluster that may answer at the address.
    pub there: Object,
    pub uids: u8,
    pub runs: u8,
    pub started: u8,
    pub over: u8,
    pub succeeded: u8,
    pub failed: u8,
    pub gone: u8,
    /// Uids whose pods the registered cluster does not list: they run elsewhere, or it forgot them.
    pub unlisted: u8,
    pub create: bool,
    pub releases: u8,
    pub deletes: u8,
    /// An overlap is Kubernetes' or an administrator's: restored control plane, attestation, orphaned pods.
    pub excused: bool,
    /// Settled without its cluster's answer, as documented.
    pub estimated: bool,
}

/// What a visit found, before it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    Released,
    Failed,
    Stopping,
    Ended(AttemptState),
    Withdrawn,
    Underway(Stop),
}

/// Where a worker is in its visit of attempt `a`. What it read at its claim is in the variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Worker {
    #[default]
    Idle,
    Start {
        a: u8,
        creates: bool,
        may_have_run: bool,
        uid: u8,
    },
    Commit {
        a: u8,
        uid: u8,
        may_have_run: bool,
    },
    Release {
        a: u8,
        uid: u8,
        may_have_run: bool,
    },
    Stop {
        a: u8,
        why: Stop,
        uid: u8,
        is_early: bool,
        was_sent: bool,
    },
    Delete {
        a: u8,
        why: Stop,
        uid: u8,
        is_early: bool,
    },
    Record {
        a: u8,
        outcome: Outcome,
    },
}

impl Worker {
    pub fn attempt(self) -> Option<usize> {
        match self {
            Self::Idle => None,
            Self::Start { a, .. }
            | Self::Commit { a, .. }
            | Self::Release { a, .. }
            | Self::Stop { a, .. }
            | Self::Delete { a, .. }
            | Self::Record { a, .. } => Some(a as usize),
        }
    }
    /// The uid that it works with; 0 is none.
    pub fn uid(self) -> Option<u8> {
        match self {
            Self::Idle | Self::Record { .. } => None,
            Self::Start { uid, .. } | Self::Commit { uid, .. } | Self::Release { uid, .. } => Some(uid),
            Self::Stop { uid, .. } | Self::Delete { uid, .. } => Some(uid),
        }
    }
    pub fn with_attempt(self, to: u8) -> Self {
        let mut other = self;
        match &mut other {
            Self::Idle => {}
            Self::Start { a, .. }
            | Self::Commit { a, .. }
            | Self::Release { a, .. }
            | Self::Stop { a, .. }
            | Self::Delete { a, .. }
            | Self::Record { a, .. } => *a = to,
        }
        other
    }
}

/// How often each fault may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    pub cancels: u8,
    pub crashes: u8,
    pub losses: u8,
    pub cuts: u8,
    pub flips: u8,
    pub recalls: u8,
    pub retries: u8,
    pub refusals: u8,
    pub deletions: u8,
    pub displacements: u8,
    pub closings: u8,
    pub plants: u8,
    pub attestations: u8,
    pub control_plane_restores: u8,
    pub database_restores: u8,
}

/// Promises that a step broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Break {
    RanUncommitted,
    TouchedForeign,
    RequeuedWhileRunning,
    EndedChanged,
    CancelForgotten,
    SuccessDeleted,
    RecalledARun,
    StartedAfterStop,
    StaleWorkerWrote,
    TwoLiveAttempts,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    pub db: Database,
    pub saved: Option<Box<Database>>,
    pub names: [Name; NAMES],
    /// Clusters that cannot be reached, and clusters at whose address another one answers, as masks.
    pub cut: u8,
    pub impostor: u8,
    pub workers: [Worker; WORKERS],
    pub faults: Faults,
    pub broken: Option<Break>,
}

impl State {
    pub fn bit(cluster: u8) -> u8 {
        1 << (cluster - 1)
    }
    pub fn is_cut(&self, a: usize) -> bool {
        self.cut & Self::bit(self.names[a].home) != 0
    }
    pub fn is_impostor(&self, a: usize) -> bool {
        self.impostor & Self::bit(self.names[a].home) != 0
    }
    /// The Job that answers to this name now.
    pub fn answering(&self, a: usize) -> Object {
        if self.is_impostor(a) {
            self.names[a].there
        } else {
            self.names[a].here
        }
    }
    pub fn answering_mut(&mut self, a: usize) -> &mut Object {
        if self.is_impostor(a) {
            &mut self.names[a].there
        } else {
            &mut self.names[a].here
        }
    }
    pub fn breaks(&mut self, what: Break) {
        self.broken.get_or_insert(what);
    }
}
