-- One row per task that training must not ask for: of the test split, or a copy of a test task.
-- copy_of is the test task that a copy repeats; it is NULL for a task whose own labels say test.
-- A copy has the names, numbers, strings and operators of a test task in the same order, and any
-- labels. These do not count, also inside strings: whitespace, parentheses, semicolons, quotes
-- and backslashes. Nor do comments, commas before a closing bracket, the zero in 1.0 and 0.5,
-- prefixes of strings, where a string is split into adjacent ones, and statements that are only
-- strings (as docstrings are), pass or ...
-- Programs that differ in nothing else are copies as well, such as a * (b + c) and a * b + c, or
-- a line and the same line indented. So are those that differ only in a string that ends its
-- line after a colon (f = lambda: "a") or, in a few places inside brackets, in a string alone on
-- a line.
-- A text with a renamed variable, another constant, other type hints or moved lines is no copy.
-- Nor is one that writes a number or character in another way (1e3 and 1000, 0xff and 0xFF),
-- omits the parentheses of a tuple of one, or adds other statements without an effect, such as 0
-- or a docstring in two pairs of parentheses.
--
-- copy_of: test task that this one repeats; NULL for a task whose own labels say test
WITH held_out AS (
    SELECT task_id
    FROM task_names
    WHERE split = 'test'
),
-- Without comments, line continuations and blanks; strings are between « and », without prefixes.
marked AS (
    SELECT
        task_id,
        regexp_replace(
            regexp_replace(
                regexp_replace(code, '[«»]', '', 'g'),
                concat(
                    -- Each match is a whole comment or string, so that none starts inside another.
                    '#[^\n]*|\\\n|(?:\b[bBfFrRuU]{1,2})?(?:',
                    '("{3}(?:[^\\]|\\.)*?)"{3}|(''{3}(?:[^\\]|\\.)*?)''{3}',
                    '|("(?:[^"\\\n]|\\.)*)"|(''(?:[^''\\\n]|\\.)*)'')'
                ),
                '«\1\2\3\4»', 'gs'
            ),
            -- An empty string is no «», because its first quote is kept.
            '«»|\B[ \t\f\x{FEFF}]+|[ \t\f\x{FEFF}]+\B', '', 'g'
        ) AS code
    FROM tasks
),
plain AS (
    SELECT
        task_id,
        hash(replace(
            regexp_replace(
                regexp_replace(
                    concat(chr(10), code, chr(10)),
                    concat(
                        -- Statements without an effect, each with the end of its line.
                        '(?:(:)|[\n;])(?:',
                        '(?:pass|[.]{3}|(?:«[^»]*»)+|\((?:\n*«[^»]*»)+\n*\))?[\n;]',
                        -- What follows starts a statement, and not the rest of an expression.
                        ')*([([{](?:[\n(]*«[^»]*»)*|[^])},.%+:=!<>&|^/«\n;]|\z)',
                        -- Strings after a bracket, or on the line after an operator, are values.
                        '|((?:[([{]|[-,=+/%&|^~<>@!]\n)(?:[\n(]*«[^»]*»)+|«[^»]*»)',
                        '|,\n*([\])}])'
                    ),
                    ' \1\2\3\4', 'g'
                ),
                -- 1.0 becomes 1. and 0.5 becomes .5
                '[ \t\f\n();"''\\]|(\d\.)0([eE]|\b)|\b0(\.\d)', '\1\2\3', 'g'
            ),
            '»«', ''
        )) AS text_hash
    FROM marked
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
