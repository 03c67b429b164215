-- Look whether the server tells who it is.  Writes nothing.
--
-- Reply {'seen'}
return {'seen'}
