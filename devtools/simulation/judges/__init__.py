"""What must hold in every run, and its history for programs that judge independently."""
