"""The learners of all seeds, on the devices that train them: of this process, and of the others of the run."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from diamond_attention.errors import UserError
from diamond_attention.learning.contract import Learner, LearnerState, Method
from diamond_attention.learning.devices import Part, parts_of
from diamond_attention.learning.seeds import (
    MOST_UPDATES_PER_CALL,
    Advance,
    advance_seeds_once,
    split_seeds,
    stack_seeds,
)
from diamond_attention.runs.processes import Order, OutOfStepError, among_others, gathered, sent, tell

Log = dict[str, np.ndarray]


class Learners:
    """What the first process asks for, `follow` in train.py does in the others."""

    def __init__(
        self, method: Method, learner: Learner, states: Sequence[LearnerState], devices: Sequence[jax.Device] = ()
    ):
        """Without `devices`, all seeds are one program on the device that JAX computes on."""
        self.parts = parts_of(len(states), devices) if devices else [Part(0, len(states), ())]
        here = jax.process_index()
        self._here = [part for part in self.parts if not devices or here in part.processes]
        self._advance: list[Advance] = [
            advance_seeds_once(method, learner, part.devices if len(part.devices) > 1 else ()) for part in self._here
        ]
        self._stacked = [stack_seeds([states[i] for i in part.places], part.devices) for part in self._here]
        self._saved = lambda state: state if method.saved_part is None else method.saved_part(learner, state)
        one = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), states[0])
        self._one_saved = self._saved(one)
        advance, stacked = advance_seeds_once(method, learner), jax.tree.map(lambda x: x[None], one)
        if self._here:  # which is traced anyway
            advance, stacked = self._advance[0], self._stacked[0]
        self._dtypes = {name: row.dtype for name, row in jax.eval_shape(advance, stacked, 1)[1].items()}
        if devices and jax.process_count() > 1:
            self._compile_and_meet()
        self.noted = 0
        """A signal that some process noted, for all."""
        self.failure: Exception | None = None
        """Why this run cannot go on, in this process or in another, while all still keep step."""

    def _compile_and_meet(self) -> None:
        """Where a program first needs another process, gloo waits 30 s for it, which may compile for longer."""
        try:
            pairs = zip(self._advance, self._stacked, strict=True)
            self._advance = [advance.lower(stacked, 1).compile() for advance, stacked in pairs]  # type: ignore[attr-defined]
        except jax.errors.JaxRuntimeError as error:
            raise OutOfStepError(str(error)) from error
        gathered(np.zeros(1, np.uint8))

    @property
    def columns(self) -> list[str]:
        return [name for name in self._dtypes if name != "failure"]

    # --- What the first process asks for ---

    def advance(self, count: int, noted: int = 0) -> Log:
        """So many updates of all seeds; their metrics [update, seed]."""
        self.noted = tell(Order.ADVANCE, count, noted)
        log = self.advance_here(count)
        if self.failure is not None:
            raise self.failure
        return log

    def states(self) -> list[LearnerState]:
        """What a checkpoint keeps of every seed's learner, as NumPy arrays."""
        tell(Order.FETCH)
        try:
            return self.fetch_here()
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            if jax.process_count() > 1:
                raise OutOfStepError(str(error)) from error
            raise

    # --- What every process then does ---

    def advance_here(self, count: int) -> Log:
        def one(place: int) -> Log:
            try:
                with among_others():
                    self._stacked[place], log = self._advance[place](self._stacked[place], count)
                    return {name: np.asarray(values)[:count] for name, values in log.items()}
            except jax.errors.JaxRuntimeError as error:
                if len(self._here[place].processes) > 1:
                    raise OutOfStepError(str(error)) from error
                raise

        try:
            if len(self._here) == 1:
                logs = [one(0)]
            else:
                # A thread each: on GPUs whoever starts a program with loops in it waits until they are done.
                with ThreadPoolExecutor(max(1, len(self._here))) as threads:
                    logs = list(threads.map(one, range(len(self._here))))
        except jax.errors.JaxRuntimeError as error:
            if jax.process_count() == 1:
                raise
            self.failure, logs = error, []  # the others hear of it where all meet
        if len(self.parts) == 1:
            return logs[0]
        return self._put_together(logs, count)

    def fetch_here(self) -> list[LearnerState]:
        states: dict[int, LearnerState] = {}
        for part, stacked in zip(self._here, self._stacked, strict=True):
            states |= dict(zip(part.places, split_seeds(self._saved(stacked)), strict=True))
        if jax.process_count() > 1:
            for part in self.parts:
                for i in part.places:
                    states[i] = sent(states.get(i, self._one_saved), part.processes[0])
        return [states[i] for i in sorted(states)]

    def _put_together(self, logs: list[Log], count: int) -> Log:
        """The metrics of all parts, seeds in their order."""
        seeds = self.parts[-1].places[-1] + 1
        # Always of one shape: what processes bring together is compiled for its shape.
        whole = {name: np.zeros((MOST_UPDATES_PER_CALL, seeds), dtype) for name, dtype in self._dtypes.items()}
        for part, log in zip(self._here if logs else (), logs, strict=True):
            for name, values in log.items():
                whole[name][:count, list(part.places)] = values
        if jax.process_count() > 1:
            well = np.array([self.failure is None], np.uint8)
            everyone = gathered(
                np.concatenate([well, *(values.reshape(-1).view(np.uint8) for values in whole.values())])
            )
            failed = np.flatnonzero(everyone[:, 0] == 0)
            if len(failed) and self.failure is None:
                self.failure = UserError(f"process {failed[0]} of this run could not go on; it says why.")
            for part in self.parts:
                theirs, at = everyone[part.processes[0]], 1
                for values in whole.values():
                    received = theirs[at : at + values.nbytes].view(values.dtype).reshape(values.shape)
                    values[:, list(part.places)] = received[:, list(part.places)]
                    at += values.nbytes
        return {name: values[:count] for name, values in whole.items()}
