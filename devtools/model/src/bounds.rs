//! The explorations: how many of everything, and which faults in each.

use crate::model::Bounds;
use crate::state::Faults;

const NONE: Faults = Faults {
    cancels: 0,
    crashes: 0,
    losses: 0,
    cuts: 0,
    flips: 0,
    recalls: 0,
    retries: 0,
    refusals: 0,
    deletions: 0,
    displacements: 0,
    closings: 0,
    plants: 0,
    attestations: 0,
    control_plane_restores: 0,
    database_restores: 0,
};

const fn one_job(name: &'static str, tries: usize, faults: Faults) -> Bounds {
    Bounds { name, jobs: 1, clusters: 2, workers: 2, tries, faults, uids: 2, late_requests_survive_restores: false }
}

const fn one_worker(name: &'static str, tries: usize, faults: Faults) -> Bounds {
    Bounds { workers: 1, ..one_job(name, tries, faults) }
}

/// Small enough for liveness too, and for every mutant; the smallest first, because mutants try them in this order.
pub const SMALL: &[Bounds] = &[
    one_worker("deletions", 2, Faults { deletions: 1, retries: 1, ..NONE }),
    one_worker("control plane restored", 2, Faults { control_plane_restores: 1, cancels: 1, ..NONE }),
    one_worker("database restored", 2, Faults { database_restores: 1, cancels: 1, ..NONE }),
    one_worker("address and cancels", 2, Faults { flips: 1, cancels: 1, ..NONE }),
    one_job("address", 2, Faults { flips: 1, ..NONE }),
    one_worker("recalls", 2, Faults { recalls: 1, cancels: 1, ..NONE }),
    one_job("workers", 3, Faults { cancels: 1, losses: 1, crashes: 1, ..NONE }),
    one_worker("displacements", 2, Faults { displacements: 1, cancels: 1, retries: 1, ..NONE }),
    one_worker("dispatch closed", 2, Faults { closings: 1, cancels: 1, cuts: 1, ..NONE }),
    one_job("failures", 2, Faults { retries: 1, ..NONE }),
    one_worker("database restored, cluster cut", 2, Faults { database_restores: 1, cuts: 1, ..NONE }),
    one_job("names", 2, Faults { plants: 1, losses: 1, cancels: 1, ..NONE }),
    one_worker("address and recalls", 2, Faults { flips: 1, recalls: 1, ..NONE }),
    one_worker("address and failures", 2, Faults { flips: 1, retries: 1, ..NONE }),
    one_worker("attestations", 2, Faults { attestations: 1, cuts: 1, ..NONE }),
    one_job("refusals", 2, Faults { refusals: 1, losses: 1, ..NONE }),
    one_job("silence", 2, Faults { cuts: 1, cancels: 1, ..NONE }),
];

/// Safety only.
pub const LARGE: &[Bounds] = &[
    Bounds { jobs: 2, ..one_job("two jobs", 2, NONE) },
    Bounds { jobs: 2, ..one_worker("two jobs, a cancel", 2, Faults { cancels: 1, ..NONE }) },
    Bounds { jobs: 2, ..one_worker("two jobs, three attempts", 3, NONE) },
    one_job("workers, more faults", 3, Faults { cancels: 1, losses: 2, crashes: 1, ..NONE }),
    one_job("silence, more faults", 3, Faults { cuts: 1, losses: 1, cancels: 1, ..NONE }),
    one_job("recalls, more faults", 3, Faults { recalls: 1, ..NONE }),
    one_job("failures, more faults", 2, Faults { retries: 1, losses: 1, ..NONE }),
    one_job("deletions, more faults", 2, Faults { deletions: 1, retries: 1, ..NONE }),
    one_job("address, more faults", 2, Faults { flips: 1, cancels: 1, ..NONE }),
    one_worker("database restored, more faults", 2, Faults { database_restores: 1, cuts: 1, cancels: 1, ..NONE }),
];

/// What is known to break without an assumption, so that the assumption is seen to be needed.
pub const WITHOUT_ASSUMPTION: Bounds = Bounds {
    late_requests_survive_restores: true,
    ..one_worker("requests outlive a restore", 2, Faults { database_restores: 1, losses: 1, ..NONE })
};
