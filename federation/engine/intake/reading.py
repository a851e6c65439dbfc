"""The reader of untrusted objects that every file and every job of this room goes through, as `foundation.reading` has it."""

from foundation.reading import MAX_FAULTS, Fault, Faults, Fields, Refused, child, text_fault

__all__ = ["MAX_FAULTS", "Fault", "Faults", "Fields", "Refused", "child", "text_fault"]
