"""What accountants do with what ran: they post, close, invoice, convert, commit and correct."""
