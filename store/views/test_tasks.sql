-- One row per task that training must not ask for: of the test split, or a copy of a test task.
-- copy_of is the test task that a copy repeats; it is NULL for a task whose own labels say test.
-- A copy has the text of a test task, without comments, docstrings and whitespace, and any labels.
-- A text with a renamed variable or another constant is no copy. Strings are part of the text,
-- except those in triple quotes and those alone on a line.
WITH held_out AS (
    SELECT task_id
    FROM task_names
    WHERE split = 'test'
),
plain AS (
    SELECT
        task_id,
        hash(regexp_replace(
            -- Strings alone on a line.
            regexp_replace(
                concat(chr(10), code),
                concat(
                    '\n[ \t]*[rRuU]?(?:"(?:[^"\\\n]|\\.)+"|''(?:[^''\\\n]|\\.)+'')',
                    '[ \t]*(?:#[^\n]*)?\n'
                ),
                '\n', 'g'
            ),
            concat(
                '"""(?s:.*?)"""|''''''(?s:.*?)''''''|#[^\n]*|\\\n|\s+',
                -- Other strings, which may contain any of these, are kept.
                '|("(?:[^"\\\n]|\\.)*"|''(?:[^''\\\n]|\\.)*'')'
            ),
            '\1', 'g'
        )) AS text_hash
    FROM tasks
),
test_texts AS (
    SELECT plain.text_hash, min(plain.task_id) AS task_id
    FROM plain
    SEMI JOIN held_out ON held_out.task_id = plain.task_id
    GROUP BY plain.text_hash
)
SELECT task_id, CAST(NULL AS VARCHAR) AS copy_of
FROM held_out
UNION ALL
SELECT plain.task_id, test_texts.task_id AS copy_of
FROM plain
INNER JOIN test_texts ON test_texts.text_hash = plain.text_hash
ANTI JOIN held_out ON held_out.task_id = plain.task_id
