-- The servers of tools that come with rdchat were called time and folder: names for servers of the person's own. Both
-- columns are JSON of ours; a quotation mark within a text of it has a backslash.
UPDATE conversations SET own_options = replace(replace(replace(replace(own_options,
    '"time"', '"rdchat-clock"'), '"time__current_time"', '"rdchat-clock__current_time"'),
    '"folder"', '"rdchat-folder"'), '"folder__', '"rdchat-folder__')
    WHERE own_options LIKE '%"tools":["%';
UPDATE messages SET tool_calls = replace(replace(tool_calls,
    '"name": "time__current_time"', '"name": "rdchat-clock__current_time"'),
    '"name": "folder__', '"name": "rdchat-folder__')
    WHERE instr(tool_calls, '"name": "time__current_time"') OR instr(tool_calls, '"name": "folder__');
UPDATE messages SET tool_name = 'rdchat-clock__current_time' WHERE tool_name = 'time__current_time';
UPDATE messages SET tool_name = 'rdchat-' || tool_name WHERE tool_name LIKE 'folder\_\_%' ESCAPE '\'
