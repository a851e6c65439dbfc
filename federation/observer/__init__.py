"""The observer: one asyncio process that follows every cluster it holds the lease for, and records what it sees."""
