"""A child for tests, by `work.served`: echoes, fails, hangs, takes memory, dies."""

import os
import sys
import threading
import time

from rdchat.errors import RdchatError
from rdchat.work.served import serve


def echo(job, value):
    return {"value": value}


def count(job, to):
    for number in range(to):
        job.report_progress(number)
    return to


def be_held(job):
    job.report_progress("begun")
    while not job.held:
        job.check_cancelled()
        threading.Event().wait(0.005)
    job.report_progress("held")
    job.wait_while_held()
    job.check_cancelled()
    return "free"


def wait(job):
    while True:
        job.check_cancelled()
        threading.Event().wait(0.005)


def hang(job):
    job.report_progress("begun")
    while True:
        time.sleep(1)


def take(job, size):
    kept = bytearray(size)
    for place in range(0, size, 4096):
        kept[place] = 1
    hang(job)


def fail(job):
    raise RdchatError("The file is odd.", "Choose another.")


def stumble(job):
    raise ValueError("a stranger's words")


def die(job, status):
    os._exit(status)


def babble(job, text):
    os.write(1, text.encode())


if __name__ == "__main__":
    calls = {call.__name__: call for call in (echo, count, be_held, wait, hang, take, fail, stumble, die, babble)}
    sys.exit(serve(calls, grace_s=2.0, logs=True))
