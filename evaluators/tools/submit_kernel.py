"""Submit a kernel to the judge."""

from evaluators.submissions.attempts import JudgeTools, Submission
from store.errors import UnknownName
from store.mcp.lake_tools import CLIENT, Reply

READS_ONLY = False


async def run(
    desk: JudgeTools,
    task: str,
    code: str,
    author: str,
    parent: str | None = None,
    session: str | None = None,
    note: str | None = None,
    prompt: str | None = None,
) -> Reply:
    """Store a kernel as your attempt at a task, and queue it for the judge on this machine.

    The answer comes at once; get_verdict waits for the verdict. The first attempt begins a session.
    Name the attempt that you improve as `parent`: the next attempt then belongs to its session, and
    show_lineage draws the search.

    Args:
        task: Name such as level1/9, L1-9 or kernelbench/level1/9, or the start of the task's id.
        code: A Python file that defines ModelNew. It may compile CUDA or C++ with load_inline.
        author: The model that wrote it.
        parent: generation_id of the attempt that this one improves, or the id of a kernel.
        session: Session to continue (default: that of the parent attempt, or a new one).
        note: What you changed and why; list_attempts shows it to later attempts.
        prompt: prompt_id of the make_prompt answer that it was written with.
    """
    issued = None
    if prompt is not None:
        issued = desk.prompts.get(prompt)
        if issued is None:
            raise UnknownName(
                f'this server has not issued a prompt "{prompt}"',
                "Make the prompt again with make_prompt, or leave it out.",
            )
    attempt = await desk.submit(
        Submission(
            task=task,
            code=code,
            author=author,
            parent=parent or None,
            session=session or None,
            note=note,
            prompt=issued,
            client=CLIENT.get(),
        )
    )
    data = {
        "generation_id": attempt.generation_id,
        "kernel_id": attempt.kernel_id,
        "session": attempt.session_id,
        "turn": attempt.turn,
        "parent_generation_id": attempt.parent_generation_id,
        "state": "queued",
    }
    return Reply(snapshot=await desk.resolve(None), data=data)
