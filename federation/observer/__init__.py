"""The observer: an asyncio process that follows every cluster for which it holds the lease, and
records what it sees.
"""
