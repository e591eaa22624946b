"""Batches from a worker. A stuck loader waits for a worker that will never answer."""

import queue
import threading


class Loader:
    def __init__(self, stuck_at=None):
        self.stuck_at = stuck_at
        self.batches = queue.Queue(maxsize=4)
        threading.Thread(target=self.produce, daemon=True).start()

    def produce(self):
        for number in range(1 << 30):
            if number == self.stuck_at:
                threading.Event().wait()  # a mount that is gone, a lock that nobody gives back
            self.batches.put(number)

    def next_batch(self):
        return self.batches.get()
